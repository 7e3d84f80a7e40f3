"""The operating system: /proc, netlink, sockets, cgroups, py-spy, deadlines. Judges nothing."""
