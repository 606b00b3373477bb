"""Other semantic caches beside recall: the same work, from the same inputs, in one run.

    python -m benchmarks.peers --work FOLDER --out results/peers.json [--only latency,eviction] [--arms gptcache]

Each peer has an environment of its own (`venvs`), with pinned versions, and a process of its own there that runs an
adapter: a small class that opens the peer's cache and puts and gets. `protocol` says what an adapter is and how it is
spoken to, `client` is the other end, `roster` names the peers and what each arm is set to. A work (`latency`,
`eviction`, `flood`, ...) is a function that is given opened arms and returns rows; `__main__` runs them in turn and
writes one result document. What cannot run here is a row that says why, with the figure that its makers publish.

To add a peer: `adapt_NAME.py` with a class and `serve(CLASS())` at its end, and an entry in `roster`. To add a work:
a function `(Bench) -> rows` and a line in `works.WORKS`.
"""
