// Stands in for Google's chart loader, which the stock tab fetches from the internet: tables become tables, charts an empty box.
(() => {
  class Table {
    constructor(place) { this.place = place; }
    draw(data) {
      const table = document.createElement("table");
      table.className = "stub";
      for (const row of data?.rows ?? []) {
        const line = table.insertRow();
        for (const value of row) line.insertCell().textContent = typeof value === "object" && value ? value.f ?? value.v ?? "" : String(value);
      }
      this.place.replaceChildren(table);
    }
    getSelection() { return []; }
    setSelection() {}
    clearChart() {}
    getContainer() { return this.place; }
  }
  class DataTable {
    constructor() { this.columns = []; this.rows = []; }
    addColumn(column) { return this.columns.push(column) - 1; }
    addRow(row) { this.rows.push(row); }
    addRows(rows) { this.rows.push(...rows); }
    getNumberOfColumns() { return this.columns.length; }
    getNumberOfRows() { return this.rows.length; }
    getValue(row, column) { return this.rows[row][column]; }
    sort() {}
  }
  // What else the tab calls does nothing.
  const lenient = (Kind) => function (...given) {
    return new Proxy(new Kind(...given), {get: (made, name) => (name in made ? made[name] : typeof name === "string" && name !== "then" ? () => null : undefined)});
  };
  const visualization = new Proxy({DataTable: lenient(DataTable), arrayToDataTable: (rows) => Object.assign(new (lenient(DataTable))(), {rows}), events: {addListener() {}, removeListener() {}}}, {
    get: (known, name) => known[name] ?? lenient(Table),
  });
  window.google = {visualization, charts: {load: () => Promise.resolve(), setOnLoadCallback: (then) => setTimeout(then, 0)}};
})();
