"""Would graph mode help, with which interface, on which modules, and what stands in the way."""
