"""GPTCache's own server as an OpenAI proxy, with one of our embedders: its configuration file cannot name one.

    python -m benchmarks.peers.gptcache_proxy --port P --folder F

Where to ask is in OPENAI_API_BASE, as its version of OpenAI's library (0.28) wants it.
"""

from __future__ import annotations

import argparse

import uvicorn
from gptcache import Cache, Config
from gptcache.adapter.api import init_similar_cache
from gptcache.processor.pre import last_content
from gptcache_server import server

from benchmarks.peers.adapt_gptcache import NO_LIMIT, Embedding, semantic_store

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", required=True)
    asked = parser.parse_args()
    embedding = Embedding("static")
    server.openai_cache = Cache()
    # As its own main does for --openai, but for the count of saved tokens, whose vocabulary comes from the network.
    init_similar_cache(
        cache_obj=server.openai_cache,
        pre_func=last_content,
        embedding=embedding,
        data_manager=semantic_store(asked.folder, embedding.dimension, NO_LIMIT),
        config=Config(enable_token_counter=False),
    )
    uvicorn.run(server.app, host="127.0.0.1", port=asked.port, log_level="warning")
