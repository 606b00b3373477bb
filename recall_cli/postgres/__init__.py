"""PostgreSQL as the shared engine: one cache for several replicas, on a database that operators already run."""
