//! One request of a log, found by its id or its line, beside the earlier prompt that is nearest.

use std::ops::ControlFlow;
use std::path::Path;

use headstart_core::figures::{counted, thousands};
use headstart_core::{Progress, UsageError};
use headstart_insight::Cause;
use headstart_trace::format::request_log::LoggedRequest;

use crate::error::AnalysisError;
use crate::logs;
use crate::rendering::Rendering;
use crate::structure::ChangePlace;
use crate::walk::{LogWalk, PromptComparison};

/// Ids and lines that a message lists.
const TOLD_MAX: usize = 5;

/// Earlier prompts that must have a label for it to be shown.
const LABEL_PROMPTS: usize = 3;

/// A request to explain.
#[derive(Clone, Copy, Debug)]
pub struct WhyQuestion<'a> {
    /// The log; `-` is standard input.
    pub log: &'a Path,
    /// Id of the request, or its line number.
    pub request: &'a str,
    /// Skips bad lines, instead of stopping at the first.
    pub skip_bad: bool,
}

/// The request that was asked about.
#[derive(Debug)]
pub struct FoundRequest {
    /// Its prompt beside the nearest earlier one.
    pub told: PromptComparison,
    /// Why they part, where that has a name.
    pub cause: Option<ToldCause>,
    /// Other requests with its id.
    pub namesakes: Namesakes,
}

/// The cause of a difference, by the same rules as in `analyze`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldCause {
    /// Its name for programs.
    pub name: &'static str,
    /// The cause as the subject of a sentence.
    pub title: String,
    /// The suggested fix.
    pub fix: String,
    /// The label, heading, tool or message at the change; words of the prompt only where several
    /// earlier prompts have them.
    pub place: Option<String>,
    /// The kind of word, if that is the cause.
    pub word: Option<Cause>,
}

impl ToldCause {
    fn of(walk: &LogWalk<'_>, told: &PromptComparison) -> Option<Self> {
        let parted = told.parted.as_ref()?;
        let allowed = |place: &ChangePlace| {
            let names: Vec<&str> = place.names().collect();
            let is_known = walk.knows(&names, LABEL_PROMPTS);
            if is_known { place.clone() } else { place.without_names() }
        };
        if let Some(placed) = parted.placed(&told.prompt) {
            let place = allowed(&placed.place);
            return Some(Self {
                name: place.cause(),
                title: place.title(),
                fix: place.fix(),
                place: place.shown(),
                word: None,
            });
        }
        let evidence = parted.evidence.as_ref()?;
        let place = parted.evidence_place(&told.prompt);
        Some(Self {
            name: evidence.cause.name(),
            title: evidence.title().to_owned(),
            fix: evidence.fix().to_owned(),
            place: place.and_then(|place| allowed(&place).shown()),
            word: Some(evidence.cause),
        })
    }
}

impl FoundRequest {
    fn of(walk: &LogWalk<'_>, request: &LoggedRequest) -> Self {
        let told = walk.tell(request);
        Self { cause: ToldCause::of(walk, &told), told, namesakes: Namesakes::default() }
    }
}

/// Other requests with the id that was asked for.
#[derive(Debug, Default)]
pub struct Namesakes {
    count: u64,
    lines: Vec<String>,
}

impl Namesakes {
    fn add(&mut self, request: &LoggedRequest) {
        self.count += 1;
        if self.lines.len() < TOLD_MAX {
            self.lines.push(request.line.to_string());
        }
    }

    /// Tells the user about further requests with the same id, if any.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        let more = if self.count > self.lines.len() as u64 { ", …" } else { "" };
        (self.count > 0).then(|| {
            format!(
                "this is the first request with that id; {} more on line {}{more}: name one by \
                 its line",
                thousands(self.count),
                self.lines.join(", ")
            )
        })
    }
}

/// Finds the request, the first with that id or else the one on that line, and explains it. The
/// bytes that are read count as progress.
///
/// # Errors
/// When the log cannot be read up to the request, or has no such request.
pub fn find(
    question: &WhyQuestion<'_>,
    rendering: &Rendering,
    progress: &dyn Progress,
) -> Result<FoundRequest, AnalysisError> {
    let asked = question.request;
    let mut walk = LogWalk::new(rendering);
    let (mut of_id, mut of_line, mut has_ids) = (None, None, false);
    let (mut ids, mut count) = (Vec::new(), 0u64);
    let mut namesakes = Namesakes::default();
    let read = logs::each(question.log, question.skip_bad, progress, |request| {
        has_ids |= request.id.is_some();
        // As it stands in the log, or as it is shown.
        let is_asked = |id: &String| *id == asked || request.name() == asked;
        let is_asked = request.id.as_ref().is_some_and(is_asked);
        match (is_asked, &of_id) {
            (true, None) => of_id = Some(FoundRequest::of(&walk, request)),
            (true, Some(_)) => namesakes.add(request),
            _ => {}
        }
        // Reading continues only to count the requests with the same id; they need no comparison.
        if of_id.is_some() {
            return ControlFlow::Continue(());
        }
        // A log may have numbers for ids, so an id that comes later still wins over the line.
        if request.line.to_string() == asked {
            of_line = Some(FoundRequest::of(&walk, request));
        }
        count += 1;
        if ids.len() < TOLD_MAX {
            ids.push(request.name());
        }
        // The request is remembered after its comparison: otherwise it is nearest to itself.
        walk.remember(request);
        // Without ids no later request can have the one that was asked for.
        if of_line.is_some() && !has_ids {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    if let Some(found) = of_id {
        // What is wrong behind it is not about it.
        return Ok(FoundRequest { namesakes, ..found });
    }
    // A failed read is reported before an answer by line: a later id might have been the one meant.
    read.map_err(|error| UsageError(error.with_causes()))?;
    if let Some(found) = of_line {
        return Ok(FoundRequest { namesakes, ..found });
    }
    let name = logs::name(question.log);
    if count == 0 {
        return Err(AnalysisError::Empty(format!(
            "{name} has no requests; a request log has one JSON object a line"
        )));
    }
    let message = format!(
        "{name} has no request {asked}; it has {}, the first: {}",
        counted(count, "request"),
        ids.join(", ")
    );
    Err(UsageError(message).into())
}
