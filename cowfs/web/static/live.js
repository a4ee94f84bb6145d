// Renews the table of mounts from server-sent events. Without scripts the page shows one state.
"use strict";
const table = document.getElementById("mounts");
if (table) {
  const size = (bytes) => (bytes === null ? "" : `${(bytes / 1048576).toFixed(1)} MiB`);
  new EventSource("/mounts/events").onmessage = (event) => {
    const rows = JSON.parse(event.data).mounts.map((mount) => {
      const row = document.createElement("tr");
      for (const text of [mount.mount_path, mount.volume, mount.state, mount.work, size(mount.memory_bytes),
        size(mount.uploaded_bytes), mount.waiting_requests ?? ""]) {
        row.appendChild(document.createElement("td")).textContent = text;
      }
      return row;
    });
    table.replaceChildren(...rows);
  };
}
