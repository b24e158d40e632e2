"""From files to one trace model: discover, decode, normalize. No statistics."""
