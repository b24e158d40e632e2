"""From files to one trace model: discover, decode, normalise. Computes no statistics."""
