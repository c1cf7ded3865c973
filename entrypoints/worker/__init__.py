"""The child process, which has the framework: it opens a session, keeps it at work, and tells what happens."""
