//! A thread of another process that hangs, as one does behind a bug or a dead disk: it is stopped by ptrace(2).

use std::fs;
use std::io;

use crate::eventually;

/// A thread that stands still until its process is killed. Only the thread that made this may use it.
pub struct HungThread {
    id: libc::pid_t,
}

impl HungThread {
    /// Stops the thread of this name in a process of ours, as soon as it has that name.
    pub fn stop(pid: u32, name: &str) -> io::Result<HungThread> {
        let mut id = None;
        eventually(&format!("a thread called {name}"), || {
            id = thread_of(pid, name);
            id.is_some()
        });
        let id = id.expect("it was found");
        ptrace(libc::PTRACE_SEIZE, id)?;
        ptrace(libc::PTRACE_INTERRUPT, id)?;
        let hung = HungThread { id };
        hung.wait(0); // until it stands
        Ok(hung)
    }

    /// Whether it is gone. A process stays until those who hold its threads have asked this.
    pub fn is_gone(&self) -> bool {
        let wait = self.wait(libc::WNOHANG);
        wait.is_some_and(|status| libc::WIFSIGNALED(status) || libc::WIFEXITED(status))
    }

    /// What has happened to it, if anything has (waitpid(2)).
    fn wait(&self, how: libc::c_int) -> Option<libc::c_int> {
        let mut status = 0;
        // SAFETY: the kernel writes one int, which lives here.
        let of = unsafe { libc::waitpid(self.id, &raw mut status, how | libc::__WALL) };
        (of == self.id).then_some(status)
    }
}

fn thread_of(pid: u32, name: &str) -> Option<libc::pid_t> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of_name = tasks.filter_map(Result::ok).find(|task| {
        let comm = fs::read_to_string(task.path().join("comm"));
        comm.is_ok_and(|comm| comm.trim() == name)
    })?;
    of_name.file_name().to_str()?.parse().ok()
}

fn ptrace(request: libc::c_uint, id: libc::pid_t) -> io::Result<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: these two requests read and write no memory of ours.
    match unsafe { libc::ptrace(request, id, none, none) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
