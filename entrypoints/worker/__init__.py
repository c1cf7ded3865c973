"""The child process, which has the framework: it opens a session, keeps it busy and reports what happens."""
