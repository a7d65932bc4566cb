//! Prompts whose tokens are unknown, and conversations that stay on the replica of their last turn.

use headstart_core::block::Namespace;
use headstart_core::{Nanos, RouteKey};
use headstart_router::{Health, PrefixIndex, Prompt, RouteRequest, Router};

use super::fleet;

/// A prompt whose tokens are not known goes where its text went, while the replica is up.
#[test]
fn texts_without_tokens_stay_on_their_replica() {
    let mut router = fleet("precise", 4);
    let index = router.text_index();
    let tokens: Vec<u32> = (0..640).collect();
    let place = |router: &mut Router, len: usize, salt: Option<&str>, second: f64| {
        let namespace = Namespace { salt, ..Namespace::default() };
        let tokens = &tokens[..len];
        let keys = index.hash(Prompt { tokens, namespace, ..Prompt::default() });
        let decision = router.route(&RouteRequest {
            text: Some(tokens),
            text_keys: Some(&keys),
            namespace,
            now: Nanos::from_secs_f64(second),
            ..RouteRequest::default()
        });
        let decision = decision.unwrap();
        router.finish(decision.reservation, Nanos::from_secs_f64(second));
        (decision.replica, decision.overlap_tokens, decision.prompt_tokens)
    };
    let (first, overlap, length) = place(&mut router, 320, None, 0.0);
    assert_eq!((overlap, length), (0, 320));
    // Minutes later, and longer: no event tells that it is held.
    assert_eq!(place(&mut router, 640, None, 600.0), (first, 320, 640));
    let (_, overlap, _) = place(&mut router, 640, Some("other"), 601.0);
    assert_eq!(overlap, 0, "another tenant's text is another text");
    router.set_health(first, Health::Down, Nanos::from_secs_f64(602.0));
    let (second, overlap, _) = place(&mut router, 640, None, 603.0);
    assert_ne!(second, first);
    assert_eq!(overlap, 0);
}

/// A conversation stays on its replica when its second turn is hashed in another way than its
/// first, and no replica is known to hold any of it.
#[test]
fn messages_find_the_replica_of_the_last_turn() {
    let mut router = fleet("precise", 4);
    let (text_index, index) = (router.text_index(), router.index());
    for conversation in 0..40_u32 {
        let tokens: Vec<u32> = (0..64).map(|at| conversation * 1000 + at).collect();
        let prompt = Prompt { tokens: &tokens, ..Prompt::default() };
        let (text, keys) = (text_index.hash(prompt), index.hash(prompt));
        let messages = [1, 2, 3].map(|message| RouteKey(u64::from(conversation * 10 + message)));
        let first = RouteRequest {
            text: Some(&tokens),
            text_keys: Some(&text),
            messages: &messages[..1],
            ..RouteRequest::default()
        };
        let second = RouteRequest {
            tokens: Some(&tokens),
            keys: Some(&keys),
            messages: &messages,
            ..RouteRequest::default()
        };
        let mut place = |request: &RouteRequest<'_>| {
            let decision = router.route(request).unwrap();
            router.finish(decision.reservation, request.now);
            decision.replica
        };
        let home = place(&first);
        assert_eq!(place(&second), home, "conversation {conversation}");
    }
}

/// A turn whose tokens are unknown stays where the turns before it went, although another replica
/// holds more of its text: those turns had tokens, and no text.
#[test]
fn an_estimated_overlap_moves_no_conversation() {
    let mut router = fleet("precise", 2);
    let (text_index, index) = (router.text_index(), router.index());
    let system: Vec<u32> = (0..640).collect();
    let prompt = Prompt { tokens: &system, ..Prompt::default() };
    let (text, keys) = (text_index.hash(prompt), index.hash(prompt));
    let route = |router: &mut Router, request: RouteRequest<'_>| {
        let decision = router.route(&request).unwrap();
        router.finish(decision.reservation, request.now);
        decision.replica
    };
    let turns = [1, 2].map(RouteKey);
    let first = RouteRequest {
        tokens: Some(&system),
        keys: Some(&keys),
        messages: &turns[..1],
        ..RouteRequest::default()
    };
    let home = route(&mut router, first);
    let other = RouteRequest {
        text: Some(&system),
        text_keys: Some(&text),
        messages: &[RouteKey(9)],
        excluded: &[home],
        ..RouteRequest::default()
    };
    assert_ne!(route(&mut router, other), home);
    let second = RouteRequest {
        text: Some(&system),
        text_keys: Some(&text),
        messages: &turns,
        ..RouteRequest::default()
    };
    assert_eq!(route(&mut router, second), home);
}

/// Equal prompts without a block are no conversation: they spread.
#[test]
fn equal_messages_have_no_home() {
    let mut router = fleet("precise", 4);
    let messages = [RouteKey(1)];
    let request = RouteRequest { messages: &messages, ..RouteRequest::default() };
    let mut replicas: Vec<_> = (0..4).map(|_| router.route(&request).unwrap().replica).collect();
    replicas.sort();
    replicas.dedup();
    assert_eq!(replicas.len(), 4);
}
