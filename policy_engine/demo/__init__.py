"""The demo: the main job told in six steps against a running system, each step checked."""
