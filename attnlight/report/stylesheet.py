"""The page's style: light and dark, desktop and phone, nothing fetched from elsewhere."""

STYLESHEET = """\
:root {
  color-scheme: light dark;
  --paper: #fefefe; --ink: #1f2329; --muted: #5a646f; --line: #d9dee4; --soft: #f3f5f7;
  --accent: #0072b2; --warn: #9a4a00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #15181c; --ink: #e6e9ed; --muted: #9aa5b1; --line: #343b44; --soft: #1e2329;
    --accent: #56b4e9; --warn: #f0b35a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", sans-serif;
}
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h1 small { color: var(--muted); font-size: 1rem; font-weight: 400; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem; padding-top: .75rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.75rem 0 .15rem; }
h4 { font-size: .95rem; margin: 1.25rem 0 .15rem; }
p { margin: .3rem 0 .6rem; max-width: 46rem; }
.lead { font-size: 1.08rem; }
.source, figcaption, .note { color: var(--muted); font-size: .9rem; }
.partial { color: var(--warn); font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 1rem 0; }
dt { color: var(--muted); }
dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .35rem .4rem; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th:first-child { text-align: left; padding-left: 0; font-weight: 400; min-width: 9rem; }
thead th { font-weight: 600; color: var(--muted); font-size: .85rem; overflow-wrap: break-word; }
.scroll td { white-space: nowrap; }
.metrics { width: auto; min-width: 16rem; }
th code { font-weight: 600; }
th small { display: block; color: var(--muted); font-size: .82rem; line-height: 1.35; }
td small { display: block; color: var(--muted); font-size: .82rem; white-space: nowrap; }
figure { margin: 1rem 0 2rem; }
figure svg { display: block; width: 100%; height: auto; }
figure svg * { stroke-linejoin: round; }
figcaption { max-width: 46rem; margin-top: .4rem; }
pre { background: var(--soft); padding: .7rem .9rem; border-radius: .3rem; overflow-x: auto;
  font-size: .85rem; line-height: 1.5; }
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: .9em; }
pre code { font-size: 1em; }
summary { cursor: pointer; color: var(--accent); }
@media (max-width: 36rem) {
  thead { display: none; }
  table, tbody, tr, th, td { display: block; width: 100%; text-align: left; }
  tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
  th, td { border: 0; padding: .1rem 0; }
  td { display: flex; flex-wrap: wrap; align-items: baseline; column-gap: .6rem; }
  td::before { content: attr(data-label); flex: 0 0 30%; color: var(--muted); font-size: .85rem;
    overflow-wrap: anywhere; }
  .scroll td { white-space: normal; }
  .metrics tr { display: flex; justify-content: space-between; }
  .metrics th, .metrics td { width: auto; }
  .metrics td::before { content: none; }
}
@media print { body { max-width: none; } details { display: none; } }
"""
