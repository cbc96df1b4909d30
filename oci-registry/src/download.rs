//! Downloads a blob into a file and verifies it while it comes. A download that was cut off, in this process or in an earlier one,
//! continues where it was.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

use crate::client::Client;
use crate::digest::Hasher;
use crate::error::RegistryError;
use crate::manifest::Descriptor;
use crate::reference::Reference;

/// How often a blob is asked for before its download has failed.
const MAX_ATTEMPTS: u32 = 5;
/// The wait before the second attempt. It doubles from one attempt to the next.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// How much of a file is read at a time to continue its hash.
const CHUNK_BYTES: usize = 256 << 10;

/// What a download tells while it runs: how many bytes of the blob are there.
pub type Progress<'a> = &'a (dyn Fn(u64) + Send + Sync);

/// Makes `path` the whole, verified blob. The part of it that is there already is kept and not asked for again. If the bytes turn
/// out to be wrong, the file is removed; if they do not all come, the file stays for the next time.
pub async fn download(
    client: &Client,
    reference: &Reference,
    blob: &Descriptor,
    path: &Path,
    progress: Progress<'_>,
) -> Result<(), RegistryError> {
    let mut wait = FIRST_WAIT;
    let mut attempts = 1;
    loop {
        let tried = attempt(client, reference, blob, path, progress).await;
        match tried {
            Ok(()) => return Ok(()),
            Err(error)
                if (error.is_transient() || matches!(error, RegistryError::CutOff { .. }))
                    && attempts < MAX_ATTEMPTS =>
            {
                tracing::debug!(%error, blob = %blob.digest, attempts, "download continues");
                tokio::time::sleep(wait).await;
                wait *= 2;
                attempts += 1;
            }
            Err(RegistryError::CutOff { .. } | RegistryError::Broken { .. }) => {
                let got = tokio::fs::metadata(path).await.map_or(0, |file| file.len());
                let what = format!("layer {}", blob.digest.short());
                return Err(RegistryError::CutOff { what, got, wanted: blob.size, attempts });
            }
            Err(error) => {
                // A disk that is full gets its room back.
                use RegistryError::{Io, TooLarge, WrongDigest};
                if matches!(error, WrongDigest { .. } | TooLarge { .. } | Io { .. }) {
                    let _ = tokio::fs::remove_file(path).await;
                }
                return Err(error);
            }
        }
    }
}

async fn attempt(
    client: &Client,
    reference: &Reference,
    blob: &Descriptor,
    path: &Path,
    progress: Progress<'_>,
) -> Result<(), RegistryError> {
    let what = || format!("layer {}", blob.digest.short());
    let writing =
        |source| RegistryError::Io { step: format!("writing layer {} to the disk", blob.digest.short()), source };
    let mut file = tokio::fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .await
        .map_err(writing)?;
    let (mut hasher, mut length) = hash_of(&mut file, blob.size).await.map_err(writing)?;
    progress(length);
    if length < blob.size {
        let mut stream = client.blob(reference, blob, length).await?;
        if stream.from != length {
            // The registry does not continue: it sends everything.
            (hasher, length) = (Hasher::default(), 0);
            file.set_len(0).await.map_err(writing)?;
            file.rewind().await.map_err(writing)?;
        }
        let copied = async {
            while let Some(bytes) = stream.next().await? {
                length = length.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
                if length > blob.size {
                    return Err(RegistryError::TooLarge { what: what(), limit: blob.size });
                }
                hasher.update(&bytes);
                file.write_all(&bytes).await.map_err(writing)?;
                progress(length);
            }
            Ok(())
        };
        let copied = copied.await;
        // What has come is kept for the next attempt, however this one ended.
        file.flush().await.map_err(writing)?;
        copied?;
    }
    if length < blob.size {
        return Err(RegistryError::CutOff { what: what(), got: length, wanted: blob.size, attempts: 1 });
    }
    let found = hasher.finish();
    if found != blob.digest {
        let (wanted, found) = (blob.digest.to_string(), found.to_string());
        return Err(RegistryError::WrongDigest { what: what(), wanted, found });
    }
    Ok(())
}

/// The hash and the length of what is in the file, which is then at its end. A file that is longer than the blob is not a part of it
/// and is emptied.
async fn hash_of(file: &mut tokio::fs::File, most: u64) -> std::io::Result<(Hasher, u64)> {
    if file.metadata().await?.len() > most {
        file.set_len(0).await?;
    }
    let mut hasher = Hasher::default();
    let mut length = 0_u64;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = file.read(&mut chunk).await?;
        if count == 0 {
            return Ok((hasher, length));
        }
        hasher.update(&chunk[..count]);
        length += u64::try_from(count).unwrap_or(0);
    }
}
