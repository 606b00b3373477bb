"""From a question to ranked chunks: candidates, fusion, reranking."""
