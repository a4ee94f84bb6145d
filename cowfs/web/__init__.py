"""`cowfs web`: the volumes of a store in a browser (starlette, uvicorn, jinja2).

    browser ── uvicorn ── gate ── routes ── pages, api, downloads, writing ── public names of cowfs
                           │        └── page (templates), answers (errors)
                           └── users, sessions

    serving        checks the options, binds, prints the address, runs the server
    gate           every request: Host, identity, token against forgery, headers of the answer
    users          roles, the file of users, the header of a proxy
    sessions       cookies of those who have logged in
    places         the stores that are shown; versions that are open
    addresses      URLs of volumes, versions and paths; names in URLs are checked here
    routes         which URL is answered by which function

Handlers block and run in worker threads. Everything that a store or a browser names is untrusted:
templates escape it, contents of files are only shown as text or as an image, and never as a page.
It imports what a user's program can, and time, randomness and directories from `base`.
"""
