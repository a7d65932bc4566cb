//! A log's prompts, one after the other, each compared with those before.
//!
//! Prompts are in memory as long as their sketches are, and no longer; nothing is written. Of the
//! worst case of a finding there is what stands around the change.

use std::ops::Range;
use std::rc::Rc;

use headstart_insight::Cause;
use headstart_insight::text::{
    Evidence, Finding, Findings, Loss, NeighbourLimits, Neighbours, PromptDivergence, Sketch,
    Sketcher,
};
use headstart_trace::format::request_log::LoggedRequest;

use crate::attribution::{LastOfSessions, PlacedChange, is_plausible, placed_change};
use crate::change::ChangeContext;
use crate::fleet::hashed;
use crate::prompt::{PromptBody, PromptRecord};
use crate::rendering::Rendering;
use crate::structure::ChangePlace;

/// The secret of hashes that never leave the process: always the same, so that the same log tells
/// the same each time, and one for all commands, so that they tell the same.
const SECRET: [u8; 32] = *b"headstart why, never leaves here";

/// Prompts from which on a cause must have cost something more than once to be told: one stray
/// request among many breaks no prefix.
const MANY_PROMPTS: u64 = 50;

/// Prompts that happen to hold the same sentences look like another order, or like a cut: a cause
/// of that kind must have cost one in this number something.
const CHANCE_SHARE: u64 = 20;

/// Two prompts that part.
#[derive(Debug)]
pub struct DivergentPrompts {
    /// The earlier one.
    pub old: Rc<PromptRecord>,
    /// Positions at which the prompts differ.
    pub divergence: PromptDivergence,
    /// Why, where that has a name.
    pub evidence: Option<Evidence>,
    /// Tokens that were known behind the difference.
    pub lost_tokens: u64,
    /// Whether both are of one conversation, where the log says it.
    is_same_session: Option<bool>,
}

/// Comparison of a request with an earlier one.
#[derive(Debug)]
pub struct PromptComparison {
    /// Its prompt.
    pub prompt: Rc<PromptRecord>,
    /// The earlier prompt that it is compared with.
    pub near: Option<Rc<PromptRecord>>,
    /// Tokens that both have in common from the start.
    pub shared_tokens: u64,
    /// Difference between both prompts; `None` if one is a prefix of the other.
    pub parted: Option<DivergentPrompts>,
}

/// Relation of a request to the earlier prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptRelation {
    /// No earlier prompt is near.
    Alone,
    /// It continues an earlier prompt, or is the beginning of one.
    GoesOn,
    /// It parts from an earlier one.
    Parts,
}

/// The worst case of a finding: a few hundred bytes and what changed, whatever the prompts hold.
#[derive(Debug)]
pub struct WorstCase {
    /// The request that lost.
    pub request: String,
    /// The one that it is compared with.
    pub neighbour: String,
    /// The texts around the change.
    pub shown: ChangeContext,
    /// The token at which they part.
    pub token: u64,
}

/// A prompt with the name of its conversation.
#[derive(Clone, Debug)]
struct SessionPrompt {
    prompt: Rc<PromptRecord>,
    session: Option<Rc<str>>,
}

/// Compares each prompt of a log with the earlier ones.
pub struct LogWalk<'a> {
    rendering: &'a Rendering,
    sketcher: Sketcher,
    neighbours: Neighbours<SessionPrompt>,
    last: LastOfSessions<Rc<str>, SessionPrompt>,
    /// Whether a conversation came twice: some tools give each request a session of its own.
    has_sessions: bool,
    findings: Findings<WorstCase>,
    prompts: u64,
}

/// Returns all findings in `prompts` prompts, most tokens lost first. Among many prompts, those of
/// a single request are left out, except templates: another template costs each prefix once. A
/// wording that is new each time does not count as a template.
pub(crate) fn told_findings<E>(findings: Findings<E>, prompts: u64) -> Vec<Finding<E>> {
    let mut findings = findings.sorted();
    let is_many = prompts >= MANY_PROMPTS;
    findings.retain(|finding| {
        let is_template = finding.cause == Cause::Template;
        // Of the detectors of a template only the one for wordings names a place.
        let is_own = is_template && finding.place != 0 && finding.is_new_each_time();
        let is_by_chance = matches!(finding.cause, Cause::Trimmed | Cause::DocumentOrder)
            && finding.requests < prompts / CHANCE_SHARE;
        !is_own && (!is_many || is_template || (finding.requests > 1 && !is_by_chance))
    });
    findings
}

/// Makes the sketches by which prompts of a log are compared.
pub(crate) fn sketcher() -> Sketcher {
    Sketcher::new(&SECRET)
}

impl DivergentPrompts {
    /// The place in the prompt's form at which `new` parts from the older one, where it says more
    /// than the kind of word; `None` for prompts of token ids.
    pub(crate) fn placed(&self, new: &PromptRecord) -> Option<PlacedChange> {
        let (PromptBody::Text(old), PromptBody::Text(new)) = (&self.old.body, &new.body) else {
            return None;
        };
        placed_change((old, new), &self.divergence, self.evidence.as_ref(), self.is_same_session)
    }

    /// The place of the words that show the cause.
    pub(crate) fn evidence_place(&self, new: &PromptRecord) -> Option<ChangePlace> {
        let (PromptBody::Text(old), PromptBody::Text(new)) = (&self.old.body, &new.body) else {
            return None;
        };
        let evidence = self.evidence.as_ref()?;
        ChangePlace::of(old, new, &(evidence.old.clone(), evidence.new.clone()))
    }

    /// Returns the changed bytes of the older and of the newer prompt: those of the evidence, or
    /// else the first region.
    pub fn spans(&self) -> (Range<usize>, Range<usize>) {
        if let Some(evidence) = &self.evidence {
            return (evidence.old.clone(), evidence.new.clone());
        }
        match self.divergence.changes.first() {
            Some(change) => (change.old.clone(), change.new.clone()),
            None => {
                // Without a region only the position is known at which they part.
                let (old, new) = (self.divergence.old_byte, self.divergence.new_byte);
                (old..old, new..new)
            }
        }
    }

    /// Why, where that has a name.
    pub fn cause(&self) -> Option<Cause> {
        self.evidence.as_ref().map(|evidence| evidence.cause)
    }
}

impl PromptComparison {
    /// Classifies the relation to the earlier prompt.
    pub fn outcome(&self) -> PromptRelation {
        match (&self.near, &self.parted) {
            (None, _) => PromptRelation::Alone,
            (Some(_), None) => PromptRelation::GoesOn,
            (Some(_), Some(_)) => PromptRelation::Parts,
        }
    }

    /// As the example of a finding, where it `parted`.
    pub(crate) fn example(&self, parted: &DivergentPrompts) -> WorstCase {
        let (old, new) = (&parted.old, &self.prompt);
        WorstCase {
            request: new.short_name(),
            neighbour: old.short_name(),
            shown: ChangeContext::example(old, new, parted.spans(), parted.cause()),
            token: self.shared_tokens,
        }
    }
}

impl<'a> LogWalk<'a> {
    /// Starts a log whose prompts `rendering` renders.
    #[must_use]
    pub fn new(rendering: &'a Rendering) -> Self {
        Self {
            rendering,
            sketcher: sketcher(),
            neighbours: Neighbours::new(NeighbourLimits::default()),
            last: LastOfSessions::default(),
            has_sessions: false,
            findings: Findings::default(),
            prompts: 0,
        }
    }

    /// Remembers a request that nothing is asked about.
    pub fn remember(&mut self, request: &LoggedRequest) {
        let (body, sketch) = self.sketched(request);
        let prompt = Rc::new(PromptRecord::new(request, body));
        self.insert(request, prompt, sketch);
    }

    /// Compares a request with the remembered ones, without remembering it.
    pub fn tell(&self, request: &LoggedRequest) -> PromptComparison {
        let (body, sketch) = self.sketched(request);
        self.told(request, body, &sketch)
    }

    /// Adds a request to the findings, and remembers it.
    pub fn add(&mut self, request: &LoggedRequest) -> PromptComparison {
        let (body, sketch) = self.sketched(request);
        // The comparison comes before the insertion: otherwise a prompt is nearest to itself.
        let told = self.told(request, body, &sketch);
        self.prompts += 1;
        if let Some(parted) = &told.parted
            && let Some(evidence) = &parted.evidence
        {
            let loss = Loss::new(evidence, parted.lost_tokens);
            // The example is made on demand: most losses are smaller than the worst of the finding.
            self.findings.add(loss, || told.example(parted));
        }
        let prompt = Rc::clone(&told.prompt);
        self.insert(request, prompt, sketch);
        told
    }

    fn insert(&mut self, request: &LoggedRequest, prompt: Rc<PromptRecord>, sketch: Sketch) {
        let session: Option<Rc<str>> = request.session.as_deref().map(Rc::from);
        let named = SessionPrompt { prompt, session: session.clone() };
        if let Some(session) = session {
            self.has_sessions |= self.last.contains(&session);
            self.last.insert(session, named.clone(), sketch.clone());
        }
        self.neighbours.insert(namespace(request), named, sketch);
    }

    /// Whether at least `least` of the remembered prompts have all of these texts.
    pub(crate) fn knows(&self, texts: &[&str], least: usize) -> bool {
        let has_all = |named: &&SessionPrompt| match &named.prompt.body {
            PromptBody::Text(text) => texts.iter().all(|part| text.contains(part)),
            PromptBody::Ids(_) => false,
        };
        self.neighbours.names().filter(has_all).take(least).count() >= least
    }

    /// All findings, most tokens lost first; without those of a single request among many.
    pub fn findings(self) -> Vec<Finding<WorstCase>> {
        told_findings(self.findings, self.prompts)
    }

    fn sketched(&self, request: &LoggedRequest) -> (PromptBody, Sketch) {
        let body = PromptBody::of(&request.prompt, self.rendering);
        let sketch = body.sketch(&self.sketcher);
        (body, sketch)
    }

    fn told(&self, request: &LoggedRequest, body: PromptBody, sketch: &Sketch) -> PromptComparison {
        let prompt = Rc::new(PromptRecord::new(request, body));
        let Some(told) = self.neighbours.tell(namespace(request), sketch) else {
            return PromptComparison { prompt, near: None, shared_tokens: 0, parted: None };
        };
        let (served, nearest) = (told.served_words, told.near.name);
        let session: Option<Rc<str>> = request.session.as_deref().map(Rc::from);
        let known = session.filter(|_| self.has_sessions);
        let explained = told.explanation.map(|explanation| (nearest.clone(), explanation));
        let found = self.last.better(known.as_ref(), sketch, served, explained);
        let near = Rc::clone(found.as_ref().map_or(&nearest.prompt, |(named, _)| &named.prompt));
        let shared_tokens = prompt.shared_tokens(&near, self.rendering);
        let behind = |one: &PromptRecord| one.tokens(self.rendering).saturating_sub(shared_tokens);
        // Neither prompt has more tokens to lose than follow the shared ones. The estimate by bytes
        // may exceed that.
        let most = behind(&prompt).min(behind(&near));
        let parted = found.map(|(named, explanation)| {
            let is_same_session = named.session.zip(known).map(|(one, other)| one == other);
            let evidence =
                explanation.evidence.filter(|evidence| match (&named.prompt.body, &prompt.body) {
                    (PromptBody::Text(old), PromptBody::Text(new)) => {
                        is_plausible((old, new), evidence, is_same_session)
                    }
                    _ => true,
                });
            DivergentPrompts {
                lost_tokens: prompt.lost(&explanation.divergence, self.rendering).min(most),
                divergence: explanation.divergence,
                evidence,
                is_same_session,
                old: named.prompt,
            }
        });
        PromptComparison { shared_tokens, prompt, near: Some(near), parted }
    }
}

/// Requests share a cache if they ask the same model under the same salt.
fn namespace(request: &LoggedRequest) -> u64 {
    hashed(&(&request.model, &request.cache_salt))
}
