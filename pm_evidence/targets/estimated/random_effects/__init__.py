"""Effects of groups, integrated out by importance sampling."""
