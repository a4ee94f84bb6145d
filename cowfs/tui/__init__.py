"""`cowfs explore`: looks at stores, volumes and versions in a terminal (textual). Reads indexes;
contents only on request. Needs no FUSE.

    app            the application; its first screen
    volumes        the volumes of a store
    version        one volume: its versions, the tree of one, the entry under the cursor
    dialogs        lists to choose from, input of a text, help
    previews       the beginning of a file: text, image, Parquet

Requests run in threads; their results reach the screens by `call_from_thread`. It imports what a
user's program can.
"""
