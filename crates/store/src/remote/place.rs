//! From what an operator writes to a store: `s3://bucket/prefix`, a folder and the like.
//!
//! Names of buckets and folders come from the option; accounts, keys, regions and endpoints from
//! the environment, as `object_store` reads it. Reaches nothing yet.

use std::path::PathBuf;
use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};

use super::RemoteError;

/// Longest wait for a connection. Within a data centre it takes milliseconds.
const CONNECT: &str = "5 seconds";

/// Longest request as the HTTP client sees it: ours end earlier, by limits that know their bytes.
const REQUEST: &str = "1 hour";

/// A kind of place, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreLocation {
    /// Amazon S3's protocol, from any vendor.
    S3 { bucket: String, prefix: Path },
    /// Google's.
    Google { bucket: String, prefix: Path },
    /// Azure's.
    Azure { container: String, prefix: Path },
    /// A folder, likely of a file system that others mount as well.
    Folder(PathBuf),
}

/// Whether a folder has the lock that a disk tier takes.
fn is_disk_tier(folder: &std::path::Path) -> bool {
    folder.join(crate::disk::LOCK).is_file()
}

impl StoreLocation {
    /// Reads what an operator wrote.
    pub(super) fn parse(url: &str) -> Result<Self, RemoteError> {
        let wrong =
            |reason: &str| RemoteError::Url { url: url.to_owned(), reason: reason.to_owned() };
        // Without a scheme it is a folder, which may be relative.
        let Some((scheme, rest)) = url.split_once("://") else {
            return match url {
                "" => Err(wrong("it is empty")),
                folder => Ok(Self::Folder(folder.into())),
            };
        };
        if scheme == "file" {
            // The name of a host would come before the first `/`.
            let is_absolute = rest.starts_with('/');
            let folder = || Self::Folder(rest.into());
            return is_absolute
                .then(folder)
                .ok_or_else(|| wrong("a folder after `file://` begins with `/`"));
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        // No port, user or query: such settings come from the environment.
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if bucket.is_empty() || !bucket.bytes().all(is_name) {
            return Err(wrong("the name of a bucket is missing or no name"));
        }
        let bucket = bucket.to_owned();
        let prefix = Path::parse(prefix).map_err(|error| wrong(&error.to_string()))?;
        match scheme {
            "s3" => Ok(Self::S3 { bucket, prefix }),
            "gs" => Ok(Self::Google { bucket, prefix }),
            "az" => Ok(Self::Azure { container: bucket, prefix }),
            _ => Err(wrong("nothing of this kind is known")),
        }
    }

    /// The store, and where in it.
    pub(super) fn open(self) -> Result<(Arc<dyn ObjectStore>, Path), RemoteError> {
        // The clients for HTTPS need a TLS provider of the process.
        choose_cryptography();
        match self {
            Self::S3 { bucket, prefix } => {
                let client = AmazonS3ConfigKey::Client;
                let store = AmazonS3Builder::from_env()
                    .with_bucket_name(&bucket)
                    .with_config(client(ClientConfigKey::ConnectTimeout), CONNECT)
                    .with_config(client(ClientConfigKey::Timeout), REQUEST)
                    .with_retry(no_retries())
                    .build();
                Ok((usable(store, &bucket, "AWS_")?, prefix))
            }
            Self::Google { bucket, prefix } => {
                let client = GoogleConfigKey::Client;
                let store = GoogleCloudStorageBuilder::from_env()
                    .with_bucket_name(&bucket)
                    .with_config(client(ClientConfigKey::ConnectTimeout), CONNECT)
                    .with_config(client(ClientConfigKey::Timeout), REQUEST)
                    .with_retry(no_retries())
                    .build();
                Ok((usable(store, &bucket, "GOOGLE_")?, prefix))
            }
            Self::Azure { container, prefix } => {
                let client = AzureConfigKey::Client;
                let store = MicrosoftAzureBuilder::from_env()
                    .with_container_name(&container)
                    .with_config(client(ClientConfigKey::ConnectTimeout), CONNECT)
                    .with_config(client(ClientConfigKey::Timeout), REQUEST)
                    .with_retry(no_retries())
                    .build();
                Ok((usable(store, &container, "AZURE_")?, prefix))
            }
            Self::Folder(folder) => {
                let wrong = |reason: String| RemoteError::Folder { folder: folder.clone(), reason };
                if is_disk_tier(&folder) {
                    let reason = "it is the folder of a disk tier: name it without `file://`";
                    return Err(wrong(reason.to_owned()));
                }
                std::fs::create_dir_all(&folder).map_err(|error| wrong(error.to_string()))?;
                let store = LocalFileSystem::new_with_prefix(&folder);
                let store = store.map_err(|error| wrong(error.to_string()))?;
                // A put counts as stored only if it survives a crash.
                Ok((Arc::new(store.with_fsync(true)), Path::default()))
            }
        }
    }

    /// Fewest bytes that a part of an upload may have, except for the last one.
    pub(super) fn least_part_bytes(&self) -> usize {
        match self {
            Self::S3 { .. } | Self::Google { .. } => 5 << 20,
            Self::Azure { .. } | Self::Folder(_) => 1,
        }
    }
}

fn usable<S: ObjectStore>(
    store: object_store::Result<S>,
    bucket: &str,
    variables: &'static str,
) -> Result<Arc<dyn ObjectStore>, RemoteError> {
    match store {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(RemoteError::Settings {
            place: bucket.to_owned(),
            reason: error.to_string(),
            variables,
        }),
    }
}

/// We try again ourselves: one budget for each request, whatever the store, and counted. The
/// crate's own would multiply with ours, and its first wait is the same for all.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// Sets `ring` as the process's TLS provider, unless one is set already.
fn choose_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have set one meanwhile, which then stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expected: StoreLocation) {
        assert_eq!(StoreLocation::parse(url).expect("it is right"), expected, "{url}");
    }

    fn check_wrong(url: &str, reason: &str) {
        let error = StoreLocation::parse(url).expect_err("it is wrong").to_string();
        assert!(error.contains(reason), "{error}");
    }

    #[test]
    fn places_are_read() {
        let bucket = || "kv-cache.eu".to_owned();
        let prefix = Path::from("a/b");
        let s3 = |prefix| StoreLocation::S3 { bucket: bucket(), prefix };
        check("s3://kv-cache.eu", s3(Path::default()));
        check("s3://kv-cache.eu/", s3(Path::default()));
        check("s3://kv-cache.eu/a/b/", s3(prefix.clone()));
        check(
            "gs://kv-cache.eu/a/b",
            StoreLocation::Google { bucket: bucket(), prefix: prefix.clone() },
        );
        check("az://kv-cache.eu/a/b", StoreLocation::Azure { container: bucket(), prefix });
        check("file:///mnt/kv", StoreLocation::Folder("/mnt/kv".into()));
        check("/mnt/kv", StoreLocation::Folder("/mnt/kv".into()));
        check("kv", StoreLocation::Folder("kv".into()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        check_wrong("", "empty");
        check_wrong("file://kv", "begins with `/`");
        check_wrong("s3://", "bucket");
        check_wrong("s3:///a", "bucket");
        check_wrong("s3://user:secret@host/a", "bucket");
        check_wrong("s3://bucket/a//b", "empty");
        check_wrong("ftp://bucket/a", "known");
        check_wrong("ftp://bucket/a", "s3://BUCKET/PREFIX");
    }

    #[test]
    fn clients_are_made_without_reaching_anything() {
        for url in ["s3://bucket/a", "gs://bucket/a"] {
            let (store, prefix) =
                StoreLocation::parse(url).expect("a URL").open().expect("a client");
            assert!(store.to_string().contains("bucket"), "{store}");
            assert_eq!(prefix, Path::from("a"));
        }
        if std::env::var_os("AZURE_STORAGE_ACCOUNT_NAME").is_none() {
            let error = StoreLocation::parse("az://a").expect("a URL").open();
            let error = error.expect_err("no account is named").to_string();
            assert!(error.contains("AZURE_*"), "{error}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let file = std::env::temp_dir().join(format!("headstart-file-{}", std::process::id()));
        std::fs::write(&file, b"x").expect("a file");
        let error = StoreLocation::Folder(file.join("kv")).open().expect_err("no folder");
        std::fs::remove_file(&file).expect("it is there");
        assert!(error.to_string().contains("headstart-file"), "{error}");
    }
}
