// Why a workload waits: in words, in numbers, what its owner can change, and what others could do.
import type { ReactNode } from 'react';
import type { Why } from '../api/types.ts';
import { bytes, exact, gpus } from '../model/format.ts';
import { isFinal } from '../model/status.ts';
import { now } from '../model/store.ts';
import { Facts } from '../parts/facts.tsx';
import { sentence } from '../parts/failure.tsx';
import { Ago, Link } from '../parts/small.tsx';

/** A workload by `project/name`, as a way to it when it is known. */
export function ByName({ full }: { full: string }) {
  const found = [...now().workloads.values()].find(
    workload => `${workload.project}/${workload.name}` === full && !isFinal(workload.status),
  );
  return found ? <Link to={`/workloads/${found.id}`}>{full}</Link> : <span>{full}</span>;
}

export function WhyItWaits({ why }: { why: Why }) {
  const { requested, usable, queue, preempted, remedy } = why;
  const accounts = why.accounts ?? [];
  const blocked = why.blocked_by ?? [];
  const changes = why.changes ?? [];
  const rows: [string, ReactNode][] = [
    ['Rule', why.rule],
    ['Requested', requested && asked(requested)],
    [
      'Free',
      usable && `${gpus(usable.free)} of ${counted(usable.gpus)} on ${nodes(usable.nodes)} it may use`,
    ],
    ...accounts.map((account): [string, ReactNode] => [`${account.kind} ${account.name}`, amounts(account)]),
    [
      'Blocked by',
      blocked.length > 0 && (
        <ul>
          {blocked.map(cause => (
            <li key={cause.text}>{sentence(cause.text)}</li>
          ))}
        </ul>
      ),
    ],
    ['Queue', queue && <Position queue={queue} />],
    [
      'Preempted',
      preempted && (
        <>
          <Ago at={preempted.at} />
          {preempted.winner && (
            <>
              {' by '}
              <ByName full={preempted.winner} />
            </>
          )}{' '}
          <span className="dim">{preempted.rule}</span>
        </>
      ),
    ],
    ['May change', why.until && exact(why.until)],
    [
      'You can change',
      changes.length > 0 && (
        <ul>
          {changes.map(change => (
            <li key={change.text}>
              <Typed text={sentence(change.text)} />
            </li>
          ))}
        </ul>
      ),
    ],
    ['Others could', remedy?.text && <Typed text={sentence(remedy.text)} />],
    ['Held by', <Holders key="held" why={why} />],
  ];
  return (
    <section className="why" aria-label="Why it waits">
      <p>{sentence(why.text)}</p>
      <Facts rows={rows.filter(([name]) => name !== 'Held by' || hasHolders(why))} />
    </section>
  );
}

/** A text in which what is typed stands between backticks. */
function Typed({ text }: { text: string }) {
  const parts = text.split('`');
  // Every second part stands between backticks.
  return parts.map((part, at) => (at % 2 === 1 ? <code key={part}>{part}</code> : part));
}

function hasHolders(why: Why) {
  return why.held_by.length + (why.held_by_projects?.length ?? 0) > 0;
}

function Holders({ why }: { why: Why }) {
  return (
    <ul>
      {why.held_by.map(held => (
        <li key={held.workload}>
          <ByName full={held.workload} /> <span className="dim">{counted(held.gpus)}</span>
        </li>
      ))}
      {why.held_by_projects?.map(held => (
        <li key={held.project}>
          {held.workloads === 1 ? 'a workload' : `${held.workloads} workloads`} of {held.project}{' '}
          <span className="dim">{counted(held.gpus)}</span>
        </li>
      ))}
    </ul>
  );
}

function Position({ queue }: { queue: NonNullable<Why['queue']> }) {
  const ahead = queue.ahead ?? [];
  const heads = [...(queue.heads_ahead ?? []), ...(queue.projects_ahead ?? [])];
  const others =
    queue.heads_ahead_count === 1
      ? '1 other project comes'
      : `${queue.heads_ahead_count} other projects come`;
  return (
    <>
      {queue.position} of {queue.waiting} in its project
      {ahead.length > 0 && (
        <>, after {ahead.map((full, at) => [at > 0 && ', ', <ByName key={full} full={full} />])}</>
      )}
      {queue.heads_ahead_count > 0 && (
        <>
          ; {others} first: {heads.map((full, at) => [at > 0 && ', ', <ByName key={full} full={full} />])}
        </>
      )}
    </>
  );
}

function counted(amount: number) {
  return amount === 1 ? '1 GPU' : `${gpus(amount)} GPUs`;
}

function nodes(count: number) {
  return count === 1 ? '1 node' : `${count} nodes`;
}

function asked(requested: NonNullable<Why['requested']>) {
  const each = requested.workers > 1 ? ' each' : '';
  const parts = [
    counted(requested.gpus),
    requested.gpu_models?.length ? `model ${requested.gpu_models.join(' or ')}` : null,
    requested.workers > 1 ? `${requested.workers} workers` : null,
    requested.cpu == null ? null : `${requested.cpu} CPU cores${each}`,
    requested.memory == null ? null : `${bytes(requested.memory)} of memory${each}`,
  ];
  return parts.filter(Boolean).join(', ');
}

function amounts(account: NonNullable<Why['accounts']>[number]) {
  const used = account.quota == null ? 'used' : `of quota ${gpus(account.quota)} used`;
  const limit = account.limit == null ? '' : `, limit ${gpus(account.limit)}`;
  return `${gpus(account.used)} ${used}, fair share ${gpus(account.fair_share)}${limit}`;
}
