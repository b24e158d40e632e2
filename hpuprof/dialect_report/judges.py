"""What a file says of each assumption: functions from its facts to a judgment."""

from __future__ import annotations

from hpuprof.dialect_report.assumption import NOT_SEEN, Judgment, all_of, at_most
from hpuprof.dialect_report.facts import EngineFacts, Facts
from hpuprof.dialect_report.words import ENQUEUE_WORDS, LAUNCH_WORDS
from hpuprof.ingest.dialect_engines import DMA, MME, NIC, OTHER, TPC

_ALIKE = 2.0
_MOSTLY, _NEARLY_ALL = 0.95, 0.99


def lanes_on_pid_0(facts: Facts) -> Judgment:
    """Judge GA01."""
    return all_of(sum(e.pid_0 for e in facts.engines), sum(e.lanes for e in facts.engines), "lanes")


def lane_numbers(facts: Facts) -> Judgment:
    """Judge GA02."""
    lanes = [e for e in facts.engines if e.engine in (TPC, MME, DMA, NIC) and e.numbers]
    total = sum(e.lanes for e in lanes)
    return all_of(total - sum(e.named_otherwise for e in lanes), total, "lanes")


def known_lanes(facts: Facts) -> Judgment:
    """Judge GA03."""
    total, other = sum(e.lanes for e in facts.engines), facts.engine(OTHER)
    return all_of(total - (other.lanes if other else 0), total, "lanes")


def _gaudi2(facts: Facts) -> bool:
    mme = facts.engine(MME)
    return mme is not None and any(event.name.startswith("MMEH_") for event in mme.events)


def tpc_lanes(facts: Facts) -> Judgment:
    """Judge GA04."""
    tpc = facts.engine(TPC)
    return at_most(tpc.lanes if tpc else 0, 24 if _gaudi2(facts) else 64, "TPC lanes")


def mme_lanes(facts: Facts) -> Judgment:
    """Judge GA05."""
    mme = facts.engine(MME)
    return at_most(mme.lanes, 4, "MME lanes") if mme and _gaudi2(facts) else NOT_SEEN


def dma_lanes(facts: Facts) -> Judgment:
    """Judge GA06."""
    dma = facts.engine(DMA)
    return at_most(dma.lanes, 6, "DMA lanes") if dma and _gaudi2(facts) else NOT_SEEN


def _events(engine: EngineFacts | None, word: str) -> Judgment:
    """Judge whether an engine's rows have known events, and whether what occupies has the expected word."""
    said = [event for event in engine.events if event.role != "absent"] if engine else []
    odd = [e for e in said if e.role == "unknown" or (e.role == "occupies" and word not in e.name)]
    total = sum(event.widths.rows for event in said)
    if not odd:
        return all_of(total, total, "rows")
    first = max(odd, key=lambda event: event.widths.rows)
    return Judgment("contradicted", f"{sum(e.widths.rows for e in odd):,} of {total:,} rows, first {first.name}")


def tpc_events(facts: Facts) -> Judgment:
    """Judge GA07."""
    return _events(facts.engine(TPC), "TPC_")


def mme_events(facts: Facts) -> Judgment:
    """Judge GA08."""
    return _events(facts.engine(MME), "WB")


def dma_events(facts: Facts) -> Judgment:
    """Judge GA09."""
    return _events(facts.engine(DMA), "DMA_")


def nic_events(facts: Facts) -> Judgment:
    """Judge GA10."""
    nic = facts.engine(NIC)
    said = [event for event in nic.events if event.role != "absent"] if nic else []
    stamps = sum(event.widths.rows for event in said if event.role == "stamp")
    return all_of(stamps, sum(event.widths.rows for event in said), "rows")


def stamp_widths(facts: Facts) -> Judgment:
    """Judge GA11."""
    stamps = [e for engine in facts.engines for e in engine.events if e.role == "stamp" and e.widths.rows >= 2]
    spread = [e for e in stamps if (e.widths.p90 or 0.0) > _ALIKE * (e.widths.p10 or 0.0) + 0.001]
    if not spread:
        return all_of(len(stamps), len(stamps), "stamps")
    worst = spread[0]
    return Judgment("contradicted", f"{worst.name}: {worst.widths.p10} to {worst.widths.p90} µs")


def no_overlap(facts: Facts) -> Judgment:
    """Judge GA12."""
    sampled = sum(e.sampled for e in facts.engines)
    return all_of(sampled - sum(e.overlapping for e in facts.engines), sampled, "rows", enough=_NEARLY_ALL)


def null_rows(facts: Facts) -> Judgment:
    """Judge GA13."""
    tpc = facts.engine(TPC)
    return all_of(tpc.null.rows if tpc else 0, sum(e.null.rows for e in facts.engines), "rows named null on TPC lanes")


def _rows_of(facts: Facts, name: str, *, device: bool) -> int:
    argument = (facts.device_arguments if device else facts.host_arguments).get(name)
    return argument.rows if argument else 0


def device_has_event(facts: Facts) -> Judgment:
    """Judge GA14."""
    rows = _rows_of(facts, "HW event name", device=True)
    return all_of(rows, facts.device_rows, "device rows", enough=_NEARLY_ALL)


def host_has_no_event(facts: Facts) -> Judgment:
    """Judge GA15."""
    rows = _rows_of(facts, "HW event name", device=False)
    return all_of(facts.host_rows - rows, facts.host_rows, "host rows") if facts.device_rows else NOT_SEEN


def _both(facts: Facts, name: str) -> int:
    """Return how many slices have an argument."""
    return _rows_of(facts, name, device=True) + _rows_of(facts, name, device=False)


def _rows_in(facts: Facts, name: str, kind: str) -> int:
    """Return how many slices have an argument of a JSON type."""
    sides = (facts.device_arguments.get(name), facts.host_arguments.get(name))
    return sum(side.types.get(kind, 0) for side in sides if side)


def id_is_number(facts: Facts) -> Judgment:
    """Judge GA16; all columns of a CSV are text."""
    if facts.form == "csv":
        return NOT_SEEN
    return all_of(_rows_in(facts, "recipeId", "int"), _both(facts, "recipeId"), "ids")


def handle_is_text(facts: Facts) -> Judgment:
    """Judge GA17."""
    odd = sum(side.get("recipeHandle", {}).get("text", 0) for side in (facts.recipes.device, facts.recipes.host))
    return all_of(_rows_in(facts, "recipeHandle", "text") - odd, _both(facts, "recipeHandle"), "handles")


def device_has_handle(facts: Facts) -> Judgment:
    """Judge GA18."""
    forms = facts.recipes.device
    said = sum(rows for form, rows in forms.get("recipeHandle", {}).items() if form not in ("empty", "null", "zero"))
    ids = sum(rows for form, rows in forms.get("recipeId", {}).items() if form not in ("zero", "empty", "null"))
    return all_of(min(said, ids), ids, "device rows with an id", enough=_MOSTLY) if said else NOT_SEEN


def enqueue_has_id(facts: Facts) -> Judgment:
    """Judge GA19."""
    calls = sum(facts.calls.words.get(word, 0) - facts.calls.zero.get(word, 0) for word in ENQUEUE_WORDS)
    if not facts.recipes.device_rows:
        return NOT_SEEN
    said = facts.recipes.enqueues if set(facts.recipes.joined_by) & set(ENQUEUE_WORDS) else 0
    return all_of(min(said, calls), calls, "enqueue calls", enough=0.5)


def key_has_one_name(facts: Facts) -> Judgment:
    """Judge GA20."""
    several, named = facts.recipes.keys_of_several_names, facts.recipes.keys_with_name
    return all_of(named - several, named, "named recipes")


def rows_have_calls(facts: Facts) -> Judgment:
    """Judge GA21; a recording of the device alone says nothing."""
    recipes = facts.recipes
    if not any(word in facts.calls.words for word in LAUNCH_WORDS):
        return NOT_SEEN
    return all_of(recipes.matched_rows, recipes.device_rows, "device rows", enough=_MOSTLY)


def runs_divide(facts: Facts) -> Judgment:
    """Judge GA22."""
    return all_of(facts.recipes.whole, facts.recipes.launched, "recipes", enough=_MOSTLY)


def one_offset(facts: Facts) -> Judgment:
    """Judge GA23."""
    found = facts.recipes
    judged = all_of(found.runs - found.early - found.late, found.runs, "runs", enough=_NEARLY_ALL)
    if not found.early + found.late:
        return judged
    where = f"{judged.figure}; {found.early:,} early in the file, {found.late:,} late, by up to {found.lead_us:g} µs"
    return Judgment(judged.verdict, where)


def in_order(facts: Facts) -> Judgment:
    """Judge GA39."""
    found = facts.recipes
    return all_of(found.runs - found.out_of_order, found.runs, "runs", enough=_NEARLY_ALL)


def recipe_names(facts: Facts) -> Judgment:
    """Judge GA24."""
    host, device = facts.recipes.host.get("recipeName", {}), facts.recipes.device.get("recipeName", {})
    total, named = sum(device.values()), sum(device.values()) - device.get("empty", 0)
    if not host and not total:
        return NOT_SEEN
    odd = host.get("other", 0)
    fine = not odd and 2 * named <= total
    figure = f"{odd:,} other names on {sum(host.values()):,} calls, names on {named:,} of {total:,} device rows"
    return Judgment("confirmed" if fine else "contradicted", figure)


def launch_words(facts: Facts) -> Judgment:
    """Judge GA25."""
    calls = sum(facts.calls.words.get(word, 0) for word in LAUNCH_WORDS)
    if not facts.device_rows or facts.form == "csv":
        return NOT_SEEN
    return Judgment("confirmed" if calls else "contradicted", f"{calls:,} calls for {facts.device_rows:,} device rows")


def one_word_per_launch(facts: Facts) -> Judgment:
    """Judge GA26."""
    outer = facts.calls.outermost
    return all_of(outer - facts.calls.repeated, outer, "outermost calls", enough=_NEARLY_ALL)


def zero_launches(facts: Facts) -> Judgment:
    """Judge GA27."""
    zero = sum(facts.calls.zero.get(word, 0) for word in LAUNCH_WORDS)
    arrows = sum(facts.arrows.values())
    if not zero:
        return NOT_SEEN
    return Judgment("confirmed" if arrows else "contradicted", f"{zero:,} calls of no length, {arrows:,} arrows")


def no_correlation(facts: Facts) -> Judgment:
    """Judge GA28."""
    rows = _rows_of(facts, "correlation", device=True)
    return all_of(facts.device_rows - rows, facts.device_rows, "device rows")


def _of_categories(facts: Facts, engines: tuple[str, ...], *names: str) -> tuple[int, int]:
    mine = [e for e in facts.engines if e.engine in engines]
    good = sum(rows for e in mine for cat, rows in e.categories.items() if cat.lower() in names)
    return good, sum(e.rows for e in mine)


def compute_is_kernel(facts: Facts) -> Judgment:
    """Judge GA29."""
    return all_of(*_of_categories(facts, (TPC, MME), "kernel"), "TPC and MME rows", enough=_NEARLY_ALL)


def dma_categories(facts: Facts) -> Judgment:
    """Judge GA30."""
    names = ("hpu_op", "runtime", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "kernel")
    return all_of(*_of_categories(facts, (DMA,), *names), "DMA rows")


def hpu_op_on_host(facts: Facts) -> Judgment:
    """Judge GA31."""
    lanes = sum(rows for e in facts.engines for cat, rows in e.categories.items() if cat == "hpu_op")
    host = facts.host_categories.get("hpu_op", 0)
    if not lanes + host or not facts.device_rows:
        return NOT_SEEN
    return Judgment("confirmed" if host else "contradicted", f"{host:,} on the host, {lanes:,} on device lanes")


def device_rows_are_slices(facts: Facts) -> Judgment:
    """Judge GA32."""
    phases = facts.device_phases
    pairs = phases.get("B", 0) + phases.get("E", 0)
    return all_of(phases.get("X", 0), phases.get("X", 0) + pairs, "device rows")


_WITH_ARGUMENTS = ("kernel", "hpu_op", "runtime", "gpu_memcpy", "gpu_memset", "privateuse1_runtime")


def null_arguments(facts: Facts) -> Judgment:
    """Judge GA33."""
    mine = [c for c in facts.categories if c.name.lower() in _WITH_ARGUMENTS]
    slices = sum(c.slices for c in mine)
    return all_of(slices - sum(c.null_args for c in mine), slices, "slices")


def hidden(facts: Facts) -> Judgment:
    """Judge GA34."""
    good = _rows_in(facts, "hidden", "int") + _rows_in(facts, "hidden", "text")
    return all_of(good, _both(facts, "hidden"), "rows")


def base_time(facts: Facts) -> Judgment:
    """Judge GA35."""
    clock = facts.clock
    if clock.base == "absent":
        return NOT_SEEN
    fine = clock.base.startswith("int") and clock.origin != "the epoch"
    return Judgment("confirmed" if fine else "contradicted", f"{clock.base}; stamps count from {clock.origin}")


def arrows(facts: Facts) -> Judgment:
    """Judge GA36."""
    mine = {text: rows for text, rows in facts.arrows.items() if text.startswith(("ac2g", "async_cpu_to_gpu"))}
    good = sum(rows for text, rows in mine.items() if _leads_to_device(text) or text.count("of no length") == 2)
    return all_of(good, sum(mine.values()), "arrows", enough=_MOSTLY)


def _leads_to_device(arrow: str) -> bool:
    tail, _, head = arrow.partition(": ")[2].partition(" > ")
    return tail.startswith("host ") and not head.startswith("host ")


def event_name(facts: Facts) -> Judgment:
    """Judge GA37."""
    device, host = (side.get("EventName") for side in (facts.device_arguments, facts.host_arguments))
    total = (device.rows if device else 0) + (host.rows if host else 0)
    return all_of(device.types.get("text", 0) if device else 0, total, "rows")


def handles_are_text(facts: Facts) -> Judgment:
    """Judge GA38."""
    names = ("streamHandle", "eventHandle")
    total = sum(_both(facts, name) for name in names)
    return all_of(sum(_rows_in(facts, name, "text") for name in names), total, "handles")


def data_type(facts: Facts) -> Judgment:
    """Judge GA40."""
    return all_of(_rows_in(facts, "dataType", "text"), _both(facts, "dataType"), "rows")
