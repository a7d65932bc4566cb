//! Predictions of a server's model for the conversations of a benchmark.
//!
//! Servers do not tell clients what they predict. The same model reads the same texts here, so
//! that a record can hold the numbers in place of the texts.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use headstart_core::Probability;
use headstart_loadgen::ChatBench;
use headstart_loadgen::script::{Exchange, exchanges};
use headstart_predict::{ContinuationModel, Predictor, Situation, encoder};
use headstart_terminal as output;
use headstart_trace::format::conversation::{Conversation, Role, Turn};

use crate::predictor::read_model;
use headstart_predict::situations::{num_prompts, of_requests};

/// Probabilities that another request follows, by conversation and turn.
#[derive(Debug, Default)]
pub(super) struct Continuations(Vec<Vec<Option<Probability>>>);

impl Continuations {
    /// Predicts with the model in `file` and `encoder`, by default `ngram`.
    ///
    /// Returns no predictions for a model that reads answers, which do not exist yet; a line on
    /// standard error says so.
    ///
    /// # Errors
    /// When file or encoder cannot be read, or do not belong together.
    pub(super) fn of(
        file: &Path,
        encoder: Option<&str>,
        conversations: &[Conversation],
        bench: &ChatBench,
    ) -> Result<Self> {
        let wrong = || format!("cannot use the predictor {}", file.display());
        let bytes = read_model(file).map_err(|what| anyhow!("{}: it {what}", wrong()))?;
        let model = ContinuationModel::from_bytes(&bytes).with_context(wrong)?;
        let encoder = encoder::open(encoder.unwrap_or("ngram")).context("--encoder")?;
        let predictor = Predictor::new(Arc::new(model), encoder).with_context(wrong)?;
        let definition = &predictor.model().definition;
        // Lengths of answers are features of the behaviour as well as their texts.
        if definition.behaviour || definition.text.answers {
            output::note(&format!(
                "{} reads answers: the record has no probability",
                file.display()
            ));
            return Ok(Self::default());
        }
        let num_prompts = num_prompts(definition);
        let of = |(number, conversation)| {
            predictor.predict(&situations(number, conversation, bench, num_prompts))
        };
        Ok(Self(conversations.iter().enumerate().map(of).collect()))
    }

    /// Of conversation `number` (from 0) at `turn` (from 1).
    pub(super) fn get(&self, number: usize, turn: usize) -> Option<Probability> {
        *self.0.get(number)?.get(turn.checked_sub(1)?)?
    }
}

/// Returns the known features at each request of `conversation`. A user's gap is the drawn think
/// time.
fn situations(
    number: usize,
    conversation: &Conversation,
    bench: &ChatBench,
    num_prompts: usize,
) -> Vec<Situation> {
    let mut known = of_requests(&as_sent(conversation), num_prompts);
    // The benchmark sends no further turns, so no prediction is needed for them.
    known.truncate(bench.max_turns.unwrap_or(usize::MAX));
    // Think times are drawn with the numbers that the benchmark uses, so both are the same.
    for (request, known) in (1..).zip(&mut known) {
        let think = bench.think.draw(bench.seed, number, request);
        known.gap_s = (request > 1).then_some(think.as_secs_f32());
    }
    known
}

/// Returns the conversation as a server receives it. The server counts messages: consecutive ones
/// of a user are one, and those before the record are not sent.
fn as_sent(conversation: &Conversation) -> Conversation {
    let messages = |Exchange { added, recorded }| {
        let answer = recorded.map(|text| (Role::Assistant, text));
        let added = added.into_iter().map(|turn| (turn.role, turn.text));
        added.chain(answer)
    };
    let messages = exchanges(conversation).into_iter().flat_map(messages);
    // Messages before the record are not sent, so the count of turns begins at zero.
    Conversation {
        turns: messages.map(|(role, text)| Turn::new(role, text)).collect(),
        ..Conversation::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use headstart_core::Rng;
    use headstart_loadgen::{Answers, ApiClient, Starts, Think, chat};
    use headstart_server::EngineBackend;
    use headstart_server::prediction::{
        ConversationPredictor, PredictionConfig, PredictorStatus, Reads, TurnOutcome, TurnQuestion,
    };

    use super::*;
    use crate::commands::serve;
    use crate::config::ServeOptions;

    const BENCH: ChatBench = ChatBench {
        active: 1,
        starts: Starts::Spaced,
        think: Think::Fixed { seconds: 2.0 },
        seed: 1,
        duration: None,
        max_tokens: 1,
        answers: Answers::Generated,
        max_turns: None,
        max_prompt_tokens: None,
    };

    /// Turns as `U1 A1 …`, behind seven that were left out.
    fn conversation(said: &str) -> Conversation {
        let turns = said.split_whitespace().map(|text| {
            let role = match text.as_bytes()[0] {
                b'U' => Role::User,
                b'S' => Role::System,
                _ => Role::Assistant,
            };
            Turn::new(role, text.to_owned())
        });
        Conversation { turns: turns.collect(), first_turn: Some(7), ..Conversation::default() }
    }

    /// Up to twelve messages of any role.
    fn random(rng: &mut Rng) -> Conversation {
        let roles = [Role::System, Role::User, Role::User, Role::Assistant, Role::Assistant];
        let turns = (0..rng.below(13)).map(|number| {
            let role = roles[rng.below(roles.len())];
            let text = if rng.below(5) == 0 { String::new() } else { format!("é{number}") };
            Turn::new(role, text)
        });
        Conversation { turns: turns.collect(), ..Conversation::default() }
    }

    #[test]
    fn a_request_is_what_a_client_sends_and_known_by_its_last_prompt() {
        for seed in 0..2_000 {
            let conversation = random(&mut Rng::new(seed));
            let last_prompt = |situation: Situation| situation.prompts.last().cloned();
            let known = of_requests(&conversation, 1).into_iter().map(last_prompt);
            // Clients glue what was said in a row.
            let sent = exchanges(&conversation).into_iter().map(|exchange| {
                let mut added = exchange.added.into_iter().rev();
                let text = added.find(|turn| turn.role == Role::User)?.text;
                text.rsplit("\n\n").next().map(str::to_owned)
            });
            assert!(known.eq(sent), "seed {seed}: {conversation:?}");
        }
    }

    /// `expected`: the prompts that each request lets the model read.
    fn check(said: &str, bench: &ChatBench, expected: &[(u16, &str)]) {
        let situations = situations(0, &conversation(said), bench, 2);
        let got = situations.iter().map(|situation| (situation.turn, situation.prompts.join(" ")));
        let wanted = expected.iter().map(|&(turn, text)| (turn, text.to_owned()));
        assert!(got.eq(wanted), "{said}: {situations:?}");
        let gaps: Vec<_> = situations.iter().map(|situation| situation.gap_s).collect();
        assert!(gaps.iter().skip(1).all(|&gap| gap == Some(2.0)), "{gaps:?}");
        assert_eq!(gaps.first(), Some(&None));
    }

    #[test]
    fn a_model_reads_the_latest_prompts() {
        let three = [(1, "U1"), (2, "U1 U2"), (3, "U2 U3")];
        check("S U1 A1 U2 A2 U3 A3", &BENCH, &three);
        check("U1 S U2 A2 U3", &BENCH, &[(2, "U1 U2"), (3, "U2 U3")]);
        check("U1 U2 A2 U3", &BENCH, &[(1, "U1\n\nU2"), (2, "U1\n\nU2 U3")]);
        let short = ChatBench { max_turns: Some(1), ..BENCH };
        check("U1 A1 U2", &short, &three[..1]);
    }

    /// A server's predictor that remembers what it was asked.
    #[derive(Default)]
    struct Listener(Mutex<Vec<TurnQuestion>>);

    impl ConversationPredictor for Listener {
        fn reads(&self) -> Reads {
            Reads { prompts: 2, answers: false }
        }

        fn prior(&self, _: u16) -> Probability {
            Probability::EVEN
        }

        fn predict(&self, questions: &[TurnQuestion]) -> Vec<Option<Probability>> {
            let mut heard = self.0.lock().expect("no panic holds it");
            heard.extend_from_slice(questions);
            vec![None; questions.len()]
        }

        fn learn(&self, _: &[TurnOutcome]) {}

        fn status(&self) -> PredictorStatus {
            PredictorStatus::default()
        }
    }

    #[tokio::test]
    async fn a_server_that_is_sent_the_conversation_knows_the_same() {
        let listener = Arc::new(Listener::default());
        let options = ServeOptions { port: Some(0), replicas: Some(1), ..ServeOptions::default() };
        let mut config = serve::config(&options).expect("valid");
        let EngineBackend::Embedded(fleet) = &mut config.backend else {
            panic!("an embedded fleet");
        };
        fleet.prediction = Some(PredictionConfig {
            predictor: listener.clone(),
            horizon: PredictionConfig::HORIZON,
        });
        let server = headstart_server::serve(config).await.expect("it starts");
        let client = ApiClient::new(&format!("http://{}", server.address()), "toy", None);
        let bench = ChatBench { think: Think::Fixed { seconds: 0.01 }, ..BENCH };
        let spoken = [conversation("A0 S U1 S U2 A2 A3 U3 U4 S A4 U5")];
        chat::run(&client.expect("a URL"), &spoken, &bench, |_| ()).await;
        let known = situations(0, &spoken[0], &bench, 2);
        let all_heard = async {
            while listener.0.lock().expect("no panic holds it").len() < known.len() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let patience = Duration::from_secs(60);
        let heard = tokio::time::timeout(patience, all_heard).await;
        heard.expect("a question for every request");
        server.shutdown().await;
        let heard = listener.0.lock().expect("no panic holds it");
        let heard = heard
            .iter()
            .map(|question| (question.turn, question.said.prompts.clone(), question.gap.is_some()));
        let known = known
            .into_iter()
            .map(|situation| (situation.turn, situation.prompts, situation.gap_s.is_some()));
        assert_eq!(heard.collect::<Vec<_>>(), known.collect::<Vec<_>>());
    }

    #[test]
    fn what_was_not_asked_is_not_known() {
        let p = Probability::new(0.25);
        let predicted = Continuations(vec![vec![p, None]]);
        assert_eq!(predicted.get(0, 1), p);
        for (number, turn) in [(0, 0), (0, 2), (0, 3), (1, 1)] {
            assert_eq!(predicted.get(number, turn), None);
        }
    }
}
