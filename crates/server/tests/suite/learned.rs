//! Tables of eviction policies outlive the process.

use headstart_cache::Policy;
use headstart_cache::policy::{Hazard, HazardOptions};
use headstart_server::EngineBackend;
use serde_json::json;

use crate::support::{chat, drained, embedded, start};

#[tokio::test]
async fn a_restart_begins_with_what_was_learned() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = || {
        let mut config = embedded(1, 64);
        let EngineBackend::Embedded(fleet) = &mut config.backend else {
            panic!("an embedded fleet");
        };
        fleet.policy = "hazard".to_owned();
        fleet.learned_tables = Some(folder.path().to_owned());
        config
    };
    let saved = folder.path().join("learned-0-device");
    let server = start(config()).await;
    for _ in 0..3 {
        let message = json!({"role": "user", "content": "Hello ".repeat(30)});
        let body = json!({"model": "toy", "messages": [message], "max_tokens": 8});
        let answer = chat(&server, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    drained(&server).await;
    server.shutdown().await;
    let first = std::fs::read(&saved).expect("saved at the end");
    let nothing = Hazard::new(64, HazardOptions::default()).learned();
    assert_ne!(Some(&first), nothing.as_ref());
    // Without a request it saves what it has read.
    start(config()).await.shutdown().await;
    assert_eq!(std::fs::read(&saved).expect("saved again"), first);
    // A damaged file costs nothing but what was learned.
    std::fs::write(&saved, &first[1..]).expect("damaged");
    start(config()).await.shutdown().await;
    assert_eq!(std::fs::read(&saved).ok(), nothing);
}

#[tokio::test]
async fn a_state_folder_needs_something_to_keep() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = embedded(1, 64);
    config.state_dir = Some(folder.path().to_owned());
    let error = config.check().expect_err("lru learns nothing").to_string();
    assert!(error.contains("`lru` learns nothing") && error.contains("--policy hazard"), "{error}");
    if let EngineBackend::Embedded(fleet) = &mut config.backend {
        fleet.policy = "hazard".to_owned();
    }
    config.check().expect("hazard learns");
}
