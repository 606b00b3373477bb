"""Measurements that need processes of their own."""
