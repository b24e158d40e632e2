"""A report whose names all try to be markup, for tests of renderers."""

import msgspec

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31mred\u202eltr & \u2028 <b>bold</b> `tick` {{ 7 * 7 }}"


def hostile(data):
    """Put a hostile text wherever a name of a trace can stand."""
    free = {"name", "label", "path", "host_row", "within", "device_name", "host_name", "top_shape", "dtype", "call", "module", "where", "text", "python_line", "step_name"}  # fmt: skip

    def changed(row):
        fields = {
            f: HOSTILE
            for f in row.__struct_fields__
            if f in free and isinstance(getattr(row, f), str) and f not in ("code", "cause")
        }
        return msgspec.structs.replace(row, **fields)

    lists = {f: getattr(data, f) for f in data.__struct_fields__ if isinstance(getattr(data, f), list)}
    lists = {f: [changed(r) for r in rows] for f, rows in lists.items() if f not in ("metrics", "findings")}
    # Obstacles and modules are joined by where they are of, not by name, so any text may stand there.
    graph = msgspec.structs.replace(data.graph_mode, sentence=HOSTILE, evidence=[HOSTILE], code=f"{HOSTILE}\nnext", command=HOSTILE)  # fmt: skip
    headline = msgspec.structs.replace(data.headline, sentence=HOSTILE)
    return msgspec.structs.replace(data, **lists, graph_mode=graph, headline=headline)
