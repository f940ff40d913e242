"""The frame of the page and its style, apart from what stands in it."""

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>falloff: what the next node buys</title>
<style>
{style}
</style>
</head>
<body>
<a class="skip" href="#figures">Skip to the figures</a>
<header>
<p class="name">falloff</p>
<h1>What does the next node buy?</h1>
<p>How the training of large language models scales, in tokens, watts and seconds, and why each added GPU gives less
than the one before. Each of the {num_figures} on this page shows what kind of evidence every point is, where it came
from, and which cells of its grid have no number, and why.</p>
<ul class="evidence" aria-label="Records on this page by kind of evidence">
{evidence}
</ul>
</header>
<nav aria-label="Figures">
<p class="label">Figures</p>
<ol>
{nav}
</ol>
</nav>
<main id="figures">
{body}
</main>
<footer>
<p>Built by <code>make figures</code> from the logs and tables in this repository.</p>
<p><a href="{readme}">README</a> <a href="{methods}">How each number is computed</a></p>
</footer>
</body>
</html>
"""

# Each pair of text and ground has at least 4.5:1 in both schemes (WCAG 2.2 AA; a test computes it).
STYLE = """:root {
  --ground: #fbfaf8; --card: #ffffff; --ink: #1f1d1a; --soft: #5c5850; --rule: #dcd8d0; --link: #0b5394;
}
@media (prefers-color-scheme: dark) {
  :root { --ground: #161719; --card: #ffffff; --ink: #e9e6e0; --soft: #aaa59b; --rule: #3a3b3e; --link: #8ab8f0; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-padding-top: 1rem; }
body {
  margin: 0 auto; max-width: 92rem; padding: 2.5rem 1rem 3rem; background: var(--ground); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  overflow-wrap: anywhere;
}
header p, .finding, figcaption, .kinds, .links, .sources, details, .whole, footer p { max-width: 46rem; }
.name { margin: 0; color: var(--soft); letter-spacing: .04em; }
h1 { margin: .1rem 0 .8rem; font-size: clamp(1.7rem, 5vw, 2.4rem); line-height: 1.15; letter-spacing: -.015em; }
h2 { margin: 0 0 .5rem; font-size: 1rem; font-weight: 600; color: var(--soft); }
.finding { margin: 0 0 1.1rem; font-size: clamp(1.15rem, 2.6vw, 1.4rem); line-height: 1.35; letter-spacing: -.008em; }
a { color: var(--link); text-underline-offset: .15em; }
a:focus-visible, summary:focus-visible { outline: 3px solid var(--link); outline-offset: 3px; border-radius: 2px; }
.skip { position: absolute; left: -100vw; }
.skip:focus { left: 1rem; top: .5rem; background: var(--ground); padding: .25rem .5rem; }
.evidence { list-style: none; padding: 0; margin: 1.2rem 0 0; max-width: 46rem; color: var(--soft); }
.evidence li { display: grid; grid-template-columns: 1.6rem 1fr; }
.evidence strong { color: var(--ink); font-weight: 600; font-variant-numeric: tabular-nums; }
.mark { color: var(--ink); }
.label { color: var(--soft); margin: 0 .6rem 0 0; }
nav { margin: 2rem 0 0; padding: 1rem 0; border-block: 1px solid var(--rule); }
nav .label { font-weight: 600; }
nav ol { margin: .3rem 0 0; padding: 0; list-style: none; }
nav li { padding: .2rem 0; }
section { padding: 2.2rem 0 1.6rem; border-bottom: 1px solid var(--rule); }
figure { margin: 0; }
.card { width: fit-content; max-width: 100%; background: var(--card); border: 1px solid var(--rule);
  border-radius: 6px; padding: .75rem; overflow-x: auto; }
.card img { display: block; max-width: 100%; height: auto; }
.hint { display: none; margin: .4rem 0 0; color: var(--soft); font-size: .9rem; }
figcaption p { margin: .9rem 0 0; font-size: .95rem; }
.kinds, .links { margin: .8rem 0 0; }
.kind, .links a { margin-right: 1rem; white-space: nowrap; }
p.sources { margin: .8rem 0 0; }
ul.sources { margin: .2rem 0 0; padding-left: 1.3rem; font-size: .95rem; }
.status { margin: .8rem 0 0; color: var(--soft); }
.status strong { color: var(--ink); font-weight: 600; }
.grid { overflow-x: auto; }
.whole { margin: .8rem 0 0; color: var(--soft); }
details { margin-top: .8rem; }
summary { cursor: pointer; padding: .15rem 0; }
details ul { margin: .3rem 0; padding-left: 1.3rem; }
table { margin: .4rem 0; border-collapse: collapse; font-size: .9rem; line-height: 1.4; }
th, td { padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--rule); text-align: left; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 400; }
.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
footer { padding-top: 1.5rem; color: var(--soft); }
footer a { margin-right: .8rem; white-space: nowrap; }
@media (max-width: 48rem) {
  .wide img { max-width: none; width: 46rem; }
  .wide + .hint { display: block; }
}
@media (min-width: 80rem) {
  body { display: grid; grid-template-columns: 14rem minmax(0, 1fr); column-gap: 3rem; padding-inline: 2.5rem; }
  header, main, footer { grid-column: 2; }
  nav { grid-column: 1; grid-row: 1 / span 3; align-self: start; position: sticky; top: 2rem; margin: 0; border: 0; }
  nav li { line-height: 1.35; padding: .35rem 0; font-size: .95rem; }
}
@media print {
  nav, .skip { display: none; }
  section { break-inside: avoid; }
}"""
