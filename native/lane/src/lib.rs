//! The fast lane: answers the kernel's FUSE requests from the engine, on threads that never wait
//! for a network, for Python, for a disk's sync or for a reclaim pass.
//!
//! ```text
//! kernel ── /dev/fuse ── device threads ── answer ── engine        or over io_uring: rings of entries, a thread each (uring)
//!                                    │        └─ not resident, or no room: parked until `resume` or `fail` (park)
//!                                    └─ fsync: threads that may wait for the disk (syncing)
//! ```
//!
//! It makes the kernel's handshake itself, or goes on from one that was made (`handshake`): also
//! where the server before was killed, whose requests the kernel sends again. `lane` has the threads
//! and their life, `route` the way of a request.
//!
//! Guarantees
//! - Every request gets exactly one reply. If the kernel has taken a request back because its
//!   caller was killed, the lane undoes what the reply counted: it forgets the look-up and closes
//!   the handle. So counts and handles equal the kernel's.
//! - An engine call that was parked has changed nothing, so it is simply made again.
//! - `wait` returns when the mount is gone or `stop` was called; then no thread of the lane is
//!   left that uses the device.
//!
//! A caller with a fatal signal is released: its parked request is answered EINTR (`interrupts`).
//! Other signals wait, as on a local disk: programs do not expect EINTR from `stat`.
//!
//! Not here: mounting, loading missing data, the file system itself.
//!
//! Threads and locks: `docs/concurrency.md`. No lock is held during a write to the device, and
//! only that of `passthrough` during an engine call.

mod answer;
mod buffer;
mod caller;
mod cpus;
mod device;
mod handshake;
mod interrupts;
mod lane;
mod pages;
mod park;
mod passthrough;
mod route;
mod signal;
mod spin;
mod syncing;
mod uring;

pub use answer::{CONGESTION, MAX_BACKGROUND};
pub use handshake::Handshake;
pub use lane::{Lane, Options, Transport};
pub use park::{Need, Waiting, Wanted};
pub use route::LOADS_MAX;
