"""Would graph mode help? Execution graph, replay, model constants, capturability. Vendor words may appear here."""
