"""The console: pages for people, rendered here, kept live by server-sent events, with nothing from another host.

    page.py      what a page is, and how one is rendered
    live.py      pages that change while somebody looks
    acting.py    what a button does: first it is shown, then done
    entering.py  logging in and out
    charts.py    plots as SVG

Each group of pages has a module in ``pages/`` and templates of its own. Pages show what operations give.
"""
