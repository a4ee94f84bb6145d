//! Patterns as in `.gitignore`: parsed and matched by gitoxide's port of git's code.

use bstr::ByteSlice;
use gix_ignore::glob::pattern::{Case, Mode};
use gix_ignore::glob::{Pattern, wildmatch};
use pyo3::prelude::*;

const SYNTAX: wildmatch::Mode = wildmatch::Mode::NO_MATCH_SLASH_LITERAL;

struct Line {
    pattern: Pattern,
    /// The pattern began with `\!` or `\#`; its backslash has been removed.
    is_escaped: bool,
}

/// A list of patterns; the last match decides.
#[pyclass(name = "IgnorePatterns", module = "cowfs._native", frozen)]
pub(crate) struct PyIgnorePatterns(Vec<Line>);

#[pymethods]
impl PyIgnorePatterns {
    #[new]
    fn new(patterns: Vec<Vec<u8>>) -> PyIgnorePatterns {
        let parsed = |line: &Vec<u8>| {
            let (pattern, _, _) = gix_ignore::parse(line, false).next()?;
            let is_escaped = line.starts_with(b"\\");
            Some(Line {
                pattern,
                is_escaped,
            })
        };
        PyIgnorePatterns(patterns.iter().filter_map(parsed).collect())
    }

    fn ignores(&self, path: &[u8], is_directory: bool) -> bool {
        let mut last_first = self.0.iter().rev();
        let found = last_first.find(|line| matches(line, path, is_directory));
        found.is_some_and(|line| !line.pattern.is_negative())
    }
}

fn matches(line: &Line, path: &[u8], is_directory: bool) -> bool {
    let pattern = &line.pattern;
    let is_for_names =
        pattern.mode.contains(Mode::NO_SUB_DIR) && !pattern.mode.contains(Mode::ABSOLUTE);
    match pattern.first_wildcard_pos {
        // git compares the literal beginning by itself and then matches the rest, in which a `**/`
        // behind a literal, as of `a**/b`, stands at the beginning and so matches across slashes.
        // gitoxide matches the whole.
        Some(at) if at > 0 && !is_for_names && !line.is_escaped => {
            let (literal, rest) = pattern.text.split_at(at);
            let is_kind = is_directory || !pattern.mode.contains(Mode::MUST_BE_DIR);
            let found = path.strip_prefix(literal).filter(|_| is_kind);
            found.is_some_and(|path| gix_ignore::glob::wildmatch(rest.into(), path.into(), SYNTAX))
        }
        _ => {
            let name_at = path.rfind_byte(b'/').map(|slash| slash + 1);
            let (path, is_directory) = (path.as_bstr(), Some(is_directory));
            pattern.matches_repo_relative_path(path, name_at, is_directory, Case::Sensitive, SYNTAX)
        }
    }
}
