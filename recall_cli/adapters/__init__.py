"""The cache inside programs: for the official clients, LangChain and LiteLLM. None of them is imported unless used."""
