"""The embedded stack: Postgres, Valkey and every process of the product on one machine, under one supervisor."""
