"""Inside a rank: hook, heartbeat page, last words, and the small library a script may call."""
