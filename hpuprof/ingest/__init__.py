"""From files to one trace model: discover, decode, normalise. No statistics."""
