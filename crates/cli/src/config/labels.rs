//! `--label-prefix NAME=FILE`: names of prefixes on the dashboard.

use anyhow::{Result, bail};
use headstart_core::shown::one_line;
use headstart_server::EngineBackend;
use headstart_server::config::PrefixLabel;

use super::ServeOptions;
use crate::exit::usage;

impl ServeOptions {
    /// Reads the files of `--label-prefix`.
    ///
    /// # Errors
    /// When one is not NAME=FILE, its file cannot be read or is empty, or no engine of `backend`
    /// has a tokenizer.
    pub(crate) fn labels(&self, backend: &EngineBackend) -> Result<Vec<PrefixLabel>> {
        // A label is matched by its tokens, which only a tokenizer can make from the text.
        if let EngineBackend::Upstreams(engines) = backend
            && engines.iter().all(|engine| engine.tokenizer.is_none())
            && !self.label_prefix.is_empty()
        {
            bail!(usage("--label-prefix needs a tokenizer: give --upstream URL,tokenizer=DIR"));
        }
        let labels = self.label_prefix.iter().map(|given| {
            label(given)
                .map_err(|wrong| usage(format!("--label-prefix {}: {wrong}", one_line(given))))
        });
        labels.collect()
    }
}

fn label(given: &str) -> Result<PrefixLabel, String> {
    let named = given.split_once('=').filter(|(name, _)| !name.is_empty());
    let Some((name, file)) = named else {
        return Err("expected NAME=FILE, such as support=prompts/support.txt".to_owned());
    };
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("cannot read {file}: {error}; name a text file"))?;
    // Editors add a line break at the end, which is not a part of the prefix.
    let text = text.trim_end();
    if text.is_empty() {
        Err(format!("{file} is empty; name a file with the prefix"))
    } else {
        Ok(PrefixLabel { name: one_line(name), text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_a_name_and_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (full, empty) = (folder.path().join("full"), folder.path().join("empty"));
        std::fs::write(&full, "You help.\n\n").expect("writes");
        std::fs::write(&empty, "\n").expect("writes");
        let read = label(&format!("a b={}", full.display())).expect("valid");
        assert_eq!((&read.name[..], &read.text[..]), ("a b", "You help."));
        for (given, part) in [
            ("name".to_owned(), "expected NAME=FILE"),
            ("=file".to_owned(), "expected NAME=FILE"),
            ("a=no-such-file".to_owned(), "cannot read no-such-file"),
            (format!("a={}", empty.display()), "is empty"),
        ] {
            let error = label(&given).expect_err("wrong");
            assert!(error.contains(part), "{given}: {error}");
        }
    }
}
