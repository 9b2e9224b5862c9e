// Hosts and their GPUs: each a cell that shows who shares it.
import { memo, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'react';
import { call } from '../api/client.ts';
import type { Node } from '../api/types.ts';
import { csv, save } from '../model/csv.ts';
import { type Holding, holdings } from '../model/derive.ts';
import { bytes, gpus, plural, short } from '../model/format.ts';
import { refresh } from '../model/live.ts';
import { useMay } from '../model/may.ts';
import { go, here, usePlace } from '../model/router.ts';
import { useSeries } from '../model/series.ts';
import { now as knownNow, useKnown } from '../model/store.ts';
import { allocatedOn, useAllocated, useBusy } from '../model/totals.ts';
import { Chart } from '../parts/chart.tsx';
import { DeviceGrid, DeviceStrip } from '../parts/devices.tsx';
import { Confirm, Drawer } from '../parts/dialog.tsx';
import { trouble } from '../parts/failure.tsx';
import { Search } from '../parts/search.tsx';
import { Button, Copyable, Empty, Link, Meter } from '../parts/small.tsx';
import { say, sayTrouble } from '../parts/toast.tsx';
import { Facts } from './workload-details.tsx';

type OnNode = ReadonlyMap<number, Holding[]> | undefined;

/** About what a card and a line take, until they were measured. */
const CARD = 130;
const ROW = 37;
/** More nodes than these begin as a list. */
const CARDS_MAX = 24;
const HOUR = 3_600_000;

function StateLabel({ state }: { state: Node['state'] }) {
  const mood = { Ready: 'good', Cordoned: 'still', Draining: 'move' }[state];
  return <span className={`status ${mood}`}>{state}</span>;
}

export default function Nodes() {
  const place = usePlace();
  const nodes = useKnown(known => known.nodes);
  const workloads = useKnown(known => known.workloads);
  const on = holdings(workloads);
  const text = place.query.get('q') ?? '';
  const state = place.query.get('state') ?? '';
  const found = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    return nodes.filter(node => {
      const labels = Object.entries(node.labels).map(([label, value]) => `${label}=${value}`);
      const all = [node.name, node.pool, ...labels, node.devices[0]?.model ?? ''].join(' ').toLowerCase();
      return words.every(word => all.includes(word)) && (state === '' || node.state === state);
    });
  }, [nodes, text, state]);
  const isFree = place.query.get('free') === 'yes';
  // Allocations change all the time; only this filter asks for them.
  const totals = useKnown(known => (isFree ? known.totals : null));
  const rows = useMemo(
    () => (totals ? found.filter(node => allocatedOn(knownNow(), node.name) < node.devices.length) : found),
    [found, totals],
  );
  const view = place.query.get('view') ?? (nodes.length > CARDS_MAX ? 'list' : 'cards');
  const opened = place.parts[1] === undefined ? null : nodes.find(node => node.name === place.parts[1]);
  const close = useCallback(() => go(here('/nodes')), []);
  const set = (query: Record<string, string | null>) => go(here(null, query), 'replace');
  const file = () =>
    save(
      'nodes.csv',
      csv(
        [
          'node',
          'state',
          'pool',
          'gpus',
          'allocated',
          'model',
          'cpu',
          'cpu allocated',
          'memory',
          'memory allocated',
        ],
        rows.map(node => [
          node.name,
          node.state,
          node.pool,
          node.devices.length,
          allocatedOn(knownNow(), node.name),
          node.devices[0]?.model ?? '',
          node.cpu,
          node.cpu_allocated,
          node.memory,
          node.memory_allocated,
        ]),
      ),
    );
  return (
    <div className="page fixed">
      <div className="page-head">
        <h1>Nodes</h1>
        <span className="dim">{plural(rows.length, 'node')}</span>
        <span className="room" />
        <Search label="Search nodes" hint="Name, label, model" text={text} />
        <select aria-label="State" value={state} onChange={event => set({ state: event.target.value })}>
          <option value="">Any state</option>
          <option>Ready</option>
          <option>Cordoned</option>
          <option>Draining</option>
        </select>
        <Button pressed={isFree} onClick={() => set({ free: isFree ? null : 'yes' })}>
          With room
        </Button>
        <fieldset className="segments" aria-label="View">
          {(['cards', 'list'] as const).map(one => (
            <button key={one} type="button" aria-pressed={view === one} onClick={() => set({ view: one })}>
              {one === 'cards' ? 'Cards' : 'List'}
            </button>
          ))}
        </fieldset>
        <Button icon="file" onClick={file}>
          CSV
        </Button>
      </div>
      {rows.length === 0 ? (
        <NoNode isFiltered={nodes.length > 0} />
      ) : (
        <Cards key={view} nodes={rows} on={on} dense={view === 'list'} />
      )}
      {opened && <NodeDrawer key={opened.name} node={opened} on={on.get(opened.name)} onClose={close} />}
    </div>
  );
}

function NoNode({ isFiltered }: { isFiltered: boolean }) {
  if (isFiltered)
    return (
      <Empty title="No nodes match">
        <Button onClick={() => go('/nodes')}>Show all nodes</Button>
      </Empty>
    );
  return (
    <Empty title="No nodes">
      <p>This machine has no GPU that Berth can use. Try it with simulated GPUs:</p>
      <Copyable text="berth up --change --nodes 2xdgx1" />
    </Empty>
  );
}

/** Only the nodes that can be seen are there. Those of one cluster are mostly of one height. */
function Cards({
  nodes,
  on,
  dense,
}: {
  nodes: readonly Node[];
  on: ReadonlyMap<string, ReadonlyMap<number, Holding[]>>;
  dense: boolean;
}) {
  const frame = useRef<HTMLDivElement>(null);
  const gap = dense ? 0 : 12;
  const [height, setHeight] = useState(dense ? ROW : CARD);
  const [view, setView] = useState({ first: 0, last: 12 });
  const look = useCallback(() => {
    const shown = frame.current;
    if (!shown) return;
    const first = Math.max(0, Math.floor(shown.scrollTop / height) - 2);
    const last = Math.ceil((shown.scrollTop + shown.clientHeight) / height) + 2;
    setView(before => (before.first === first && before.last === last ? before : { first, last }));
  }, [height]);
  useLayoutEffect(() => {
    const card = frame.current?.querySelector<HTMLElement>('article');
    if (card && Math.abs(card.offsetHeight + gap - height) > 1) setHeight(card.offsetHeight + gap);
    look();
    const watcher = new ResizeObserver(look);
    if (frame.current) watcher.observe(frame.current);
    return () => watcher.disconnect();
  }, [look, height, gap]);
  const first = Math.min(view.first, Math.max(0, nodes.length - 1));
  const last = Math.min(view.last, nodes.length);
  return (
    <section className="node-frame" ref={frame} onScroll={look} aria-label="Nodes">
      <div style={{ height: first * height }} />
      <div className={dense ? 'panel node-dense' : 'node-list'}>
        {nodes.slice(first, last).map(node => {
          const One = dense ? NodeLine : NodeCard;
          return <One key={node.name} node={node} on={on.get(node.name)} />;
        })}
      </div>
      <div style={{ height: (nodes.length - last) * height }} />
    </section>
  );
}

const NodeCard = memo(function NodeCard({ node, on }: { node: Node; on: OnNode }) {
  const busy = useBusy(node.name);
  const allocated = useAllocated(node.name);
  return (
    <article className="panel node-card" aria-label={node.name}>
      <header>
        <Link to={here(`/nodes/${encodeURIComponent(node.name)}`)}>{node.name}</Link>
        <StateLabel state={node.state} />
        <span>
          {gpus(allocated)} / {node.devices.length} GPUs
        </span>
        <span className="dim">
          {node.devices[0]?.model}
          {node.devices[0] && `, ${bytes(node.devices[0].memory)}`}
        </span>
        {node.pool !== 'default' && <span className="tag">{node.pool}</span>}
        <span className="dim" title={`CPU and memory that workloads requested, of ${node.name}`}>
          {resources(node)}
        </span>
        <span className="room" />
        {busy !== null && <span className="dim">{Math.round(busy)} % busy</span>}
        <Actions node={node} />
      </header>
      <DeviceGrid node={node} on={on} />
    </article>
  );
});

/** CPU and memory of a node, allocated of all. */
function resources(node: Node): string {
  const cpu = `${short(node.cpu_allocated)} of ${short(node.cpu)} CPU`;
  return node.memory > 0 ? `${cpu}, ${bytes(node.memory_allocated)} of ${bytes(node.memory)}` : cpu;
}

/** A node in one line, for clusters of many. */
const NodeLine = memo(function NodeLine({ node, on }: { node: Node; on: OnNode }) {
  const allocated = useAllocated(node.name);
  return (
    <article className="node-line" aria-label={node.name}>
      <Link to={here(`/nodes/${encodeURIComponent(node.name)}`)}>{node.name}</Link>
      <StateLabel state={node.state} />
      <DeviceStrip node={node} on={on} />
      <span>
        {gpus(allocated)} / {node.devices.length} GPUs
      </span>
      <Meter part={useBusy(node.name)} label="Utilisation" tone="good" />
      <span className="dim no-phone">{resources(node)}</span>
    </article>
  );
});

function Actions({ node }: { node: Node }) {
  const [draining, setDraining] = useState(false);
  if (!useMay().do('rule')) return null;
  const act = async (action: 'cordon' | 'uncordon' | 'drain') => {
    await call('POST', `/nodes/${encodeURIComponent(node.name)}/${action}`);
    say(
      {
        cordon: `Cordoned ${node.name}`,
        uncordon: `Uncordoned ${node.name}`,
        drain: `Draining ${node.name}`,
      }[action],
    );
    await refresh('nodes');
  };
  const tell = (error: unknown) => sayTrouble(trouble(error));
  return (
    <span className="row-actions">
      {node.state === 'Ready' ? (
        <Button small onClick={() => act('cordon').catch(tell)} label={`Cordon ${node.name}`}>
          Cordon
        </Button>
      ) : (
        <Button small onClick={() => act('uncordon').catch(tell)} label={`Uncordon ${node.name}`}>
          Uncordon
        </Button>
      )}
      {node.state !== 'Draining' && (
        <Button small onClick={() => setDraining(true)} label={`Drain ${node.name}`}>
          Drain
        </Button>
      )}
      {draining && (
        <Confirm
          title={`Drain ${node.name}?`}
          verb="Drain"
          onClose={() => setDraining(false)}
          onConfirm={() => act('drain')}
        >
          <p>
            It takes no new work. Workloads on it save their state, return to the queue with their place, and
            resume on other nodes.
          </p>
        </Confirm>
      )}
    </span>
  );
}

function NodeDrawer({ node, on, onClose }: { node: Node; on: OnNode; onClose: () => void }) {
  const allocated = useAllocated(node.name);
  const [now] = useState(() => Date.now());
  const range = useMemo(() => ({ from: now - 6 * HOUR, to: now }), [now]);
  const name = `gpu_utilisation/${node.name}`;
  const series = useSeries([name], range, true);
  useEffect(() => {
    void refresh('nodes');
  }, []);
  const lines = [
    {
      name: 'Utilisation',
      colour: 'var(--good)',
      points: (series.get(name) ?? []).map(([at, value]): [number, number] => [at, value]),
    },
  ];
  const labels = Object.entries(node.labels);
  return (
    <Drawer
      label={`Node ${node.name}`}
      title={
        <>
          <h2>{node.name}</h2>
          <div className="row">
            <StateLabel state={node.state} />
            <span>
              {gpus(allocated)} of {plural(node.devices.length, 'GPU')} allocated
            </span>
          </div>
        </>
      }
      actions={<Actions node={node} />}
      onClose={onClose}
    >
      <div className="tab-panel">
        <Facts
          rows={[
            ['Pool', node.pool],
            [
              'GPUs',
              node.devices[0] &&
                `${node.devices.length} × ${node.devices[0].model}, ${bytes(node.devices[0].memory)}`,
            ],
            ['CPU', `${node.cpu_allocated} of ${node.cpu} cores allocated`],
            ['Memory', `${bytes(node.memory_allocated)} of ${bytes(node.memory)} allocated`],
            ['Labels', labels.length > 0 && labels.map(([label, value]) => `${label}=${value}`).join(', ')],
            [
              'Workloads',
              node.workloads.length > 0 && (
                <Link className="outside" to={`/workloads?node=${encodeURIComponent(node.name)}`}>
                  {plural(node.workloads.length, 'workload')}
                </Link>
              ),
            ],
          ]}
        />
        <div className="section">
          <h3>Devices</h3>
          <DeviceGrid node={node} on={on} />
        </div>
        <div className="section">
          <h3>Utilisation, last 6 hours</h3>
          <Chart
            label={`Utilisation of ${node.name}`}
            lines={lines}
            from={range.from}
            to={Date.now()}
            unit="%"
            most={100}
            height={150}
          />
        </div>
      </div>
    </Drawer>
  );
}
