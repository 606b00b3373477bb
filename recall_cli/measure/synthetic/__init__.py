"""Generated workloads with known answers: vectors, texts, conversations, a sample log."""
