"""The caching proxy in front of OpenAI- and Anthropic-compatible APIs."""
