"""The types that flow through hpuprof: columns, intervals, metrics. Knows no file format and no renderer."""
