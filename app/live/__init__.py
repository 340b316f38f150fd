"""The engine live: one for everybody (lesson 8) and a visitor's own run (lesson 1), sent to browsers as frames."""
