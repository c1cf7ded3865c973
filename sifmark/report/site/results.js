// Sorts and searches the list of results. Without it, the list is a table in the order of workloads.
(() => {
  const table = document.querySelector("table.list"), body = table.tBodies[0];
  const rows = [...body.rows], words = rows.map(row => row.textContent.toLowerCase());
  const tools = document.getElementById("tools"), field = tools.querySelector("input");
  const count = tools.querySelector("output"), order = new Intl.Collator("en", { numeric: true });

  const search = () => {
    const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, place) => {
      row.hidden = !wanted.every(word => words[place].includes(word));
      shown += !row.hidden;
    });
    count.value = `${shown} of ${rows.length}`;
  };

  const key = (row, place) => {
    const cell = row.cells[place], number = cell.dataset.sort;
    return number === undefined ? cell.textContent.trim() : number === "" ? null : Number(number);
  };
  const compare = (a, b, sign) => {
    if (a === null || b === null) return (a === null) - (b === null); // without a number, last
    return sign * (typeof a === "number" ? a - b : order.compare(a, b));
  };
  const heads = [...table.tHead.rows[0].cells];
  const sort = (head, place) => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach(each => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const sorted = rows.map(row => [key(row, place), row]);
    sorted.sort((a, b) => compare(a[0], b[0], down ? -1 : 1));
    body.append(...sorted.map(pair => pair[1]));
  };
  heads.forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(head, place));
  });
  field.addEventListener("input", search);
  tools.hidden = false;
  search();
})();
