// Server-Sent Events over fetch: unlike an EventSource it can send the key of this page, and tells a refusal from a
// lost connection.
import { ask, withQuery } from './client.ts';
import type { ClusterTotals, Event, Samples } from './types.ts';

/** The server says something at least every 15 s. */
const SILENCE_MAX_MS = 40_000;

export interface Told {
  event: (event: Event) => void;
  samples: (samples: Samples) => void;
  totals: (totals: ClusterTotals) => void;
  open: () => void;
}

/** Follows until the connection ends, and then returns; throws when it is refused. */
export async function follow(after: number, told: Told, signal: AbortSignal): Promise<void> {
  const silence = new AbortController();
  const either = AbortSignal.any([signal, silence.signal]);
  const path = withQuery('/events/stream', {
    after,
    objects: true,
    samples: true,
    totals: true,
    changed_nodes: true,
  });
  const response = await ask('GET', path, undefined, either);
  told.open();
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let watch = setTimeout(() => silence.abort(), SILENCE_MAX_MS);
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(watch);
      watch = setTimeout(() => silence.abort(), SILENCE_MAX_MS);
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop() ?? '';
      for (const block of blocks) deliver(block, told);
    }
  } catch (error) {
    if (signal.aborted) throw error;
    // A torn connection is the end of it, like any other.
  } finally {
    clearTimeout(watch);
    reader.cancel().catch(() => {});
  }
}

function deliver(block: string, told: Told) {
  let kind = '';
  const data: string[] = [];
  for (const line of block.split('\n')) {
    if (line.startsWith('event:')) kind = line.slice(6).trim();
    else if (line.startsWith('data:')) data.push(line.slice(5).trimStart());
  }
  if (data.length === 0) return;
  const body = JSON.parse(data.join('\n'));
  if (kind === 'samples') told.samples(body as Samples);
  else if (kind === 'totals') told.totals(body as ClusterTotals);
  else told.event(body as Event);
}
