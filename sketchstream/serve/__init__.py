"""The query service: a store of publications, its follower, the reconstruction of windows, and the HTTP API.

In: published sketches and frontiers. Out: answers over HTTP, by the functions of the command line. Touches: its
database, a listening socket, the processes that it starts. It reads what workers publish and never their state.
"""
