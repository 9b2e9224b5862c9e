// The cluster at a glance. Every number leads to what it is made of.
import { lazy, Suspense, useMemo, useState } from 'react';
import type { Event, Node, Workload } from '../api/types.ts';
import { type Holding, holdings, pending, running } from '../model/derive.ts';
import { gpus, percent } from '../model/format.ts';
import { useMay } from '../model/may.ts';
import { go } from '../model/router.ts';
import { useKnown } from '../model/store.ts';
import { useAllocated, useBusy, useTotals } from '../model/totals.ts';
import { DeviceStrip } from '../parts/devices.tsx';
import { QuotaBar } from '../parts/quota.tsx';
import { Ago, Button, Copyable, Empty, Link, Meter, ProjectName } from '../parts/small.tsx';
import { Table } from '../parts/table.tsx';
import { PENDING_COLUMNS, RUNNING_COLUMNS } from './workload-columns.tsx';

const Trend = lazy(() => import('./overview-trend.tsx'));
const Submit = lazy(() => import('./submit.tsx').then(page => ({ default: page.Submit })));

/** Rows of a list here; the rest is one click away. */
const ROWS = 8;
/** Projects that are shown here at most, those with most GPUs first. */
const PROJECTS = 12;

export function Overview() {
  const cluster = useKnown(known => known.cluster);
  const may = useMay();
  const [submitting, setSubmitting] = useState(false);
  return (
    <div className="page">
      <div className="page-head">
        <h1>Overview</h1>
        {cluster?.declared && (
          <span className="tag" title="These GPUs are declared, not real; workloads are real processes">
            Simulated GPUs
          </span>
        )}
        <span className="room" />
        {may.somewhere('submit') && (
          <Button kind="primary" icon="plus" onClick={() => setSubmitting(true)}>
            Submit
          </Button>
        )}
      </div>
      <Tiles />
      <div className="columns">
        <div className="stack">
          <Shares />
          <Latest />
        </div>
        <div className="stack">
          <NodesAtAGlance />
          <Suspense fallback={<section className="panel trend-space" />}>
            <Trend />
          </Suspense>
        </div>
      </div>
      <Running />
      <Pending />
      {submitting && (
        <Suspense>
          <Submit from={null} onClose={() => setSubmitting(false)} />
        </Suspense>
      )}
    </div>
  );
}

function Tiles() {
  const totals = useTotals();
  const nodes = useKnown(known => known.nodes);
  const workloads = useKnown(known => known.workloads);
  if (!totals) return null;
  const seen = { running: running(workloads).length, pending: pending(workloads).length };
  return (
    <div className="tiles">
      <Tile
        name="Nodes"
        to="/nodes"
        number={totals.nodes_ready}
        of={totals.nodes}
        more={
          totals.nodes_ready === totals.nodes ? 'all ready' : `${totals.nodes - totals.nodes_ready} not ready`
        }
      />
      <Tile name="GPUs" to="/nodes" number={gpus(totals.gpus)} more={models(nodes)} />
      <Tile
        name="Allocated"
        to="/analytics"
        number={gpus(totals.gpus_allocated)}
        of={gpus(totals.gpus)}
        more={totals.gpus > 0 ? percent((totals.gpus_allocated / totals.gpus) * 100) : 'no GPUs'}
      />
      <Tile
        name="Allocated and idle"
        to="/workloads?idle=yes"
        number={gpus(totals.gpus_idle)}
        of={gpus(totals.gpus_allocated)}
        more={
          totals.gpus_allocated === 0
            ? 'nothing allocated'
            : totals.gpus_idle > 0
              ? 'below 5 % busy'
              : totals.gpus_unknown > 0
                ? `${gpus(totals.gpus_unknown)} do not report`
                : 'all busy'
        }
      />
      <Tile
        name="Utilisation"
        to="/analytics"
        number={totals.utilisation == null ? '–' : percent(totals.utilisation)}
        more={SOURCES[totals.utilisation_source ?? 'unknown'] ?? ''}
      />
      <Tile
        name="Running"
        to="/workloads?show=running"
        number={totals.running_count}
        more={
          seen.running < totals.running_count
            ? `${seen.running} you can see`
            : `${gpus(totals.gpus_allocated)} ${totals.gpus_allocated === 1 ? 'GPU' : 'GPUs'}`
        }
      />
      <Tile
        name="Pending"
        to="/workloads?show=pending"
        number={totals.pending_count}
        more={
          seen.pending < totals.pending_count
            ? `${seen.pending} you can see`
            : totals.suspended_count > 0
              ? `and ${totals.suspended_count} suspended`
              : totals.pending_count > 0
                ? `${gpus(totals.pending_gpus)} GPUs requested`
                : 'nothing waits'
        }
      />
    </div>
  );
}

/** Where the number of utilisation comes from. */
const SOURCES: Record<string, string> = {
  measured: 'measured',
  reported: 'as reported',
  mixed: 'measured and reported',
  free: 'nothing allocated',
  unknown: 'not reported',
};

type OnNode = ReadonlyMap<number, Holding[]> | undefined;

function models(nodes: readonly { devices: { model: string }[] }[]) {
  const names = [...new Set(nodes.flatMap(node => node.devices.map(device => device.model)))];
  return names.length <= 2 ? names.join(', ') : `${names.length} models`;
}

function Tile(props: {
  name: string;
  to: string;
  number: string | number;
  of?: number | string;
  more: string;
}) {
  return (
    <Link className="tile" to={props.to}>
      <span className="tile-name">{props.name}</span>
      <span className="tile-number">
        {props.number}
        {props.of !== undefined && <small> / {props.of}</small>}
      </span>
      <span className="tile-more">{props.more}</span>
    </Link>
  );
}

function Shares() {
  const all = useKnown(known => known.projects);
  const may = useMay();
  const projects = useMemo(() => {
    if (all.length <= PROJECTS) return all;
    return [...all].sort((a, b) => b.allocated - a.allocated).slice(0, PROJECTS);
  }, [all]);
  const scale = Math.max(
    1,
    ...projects.map(project => Math.max(project.allocated, project.settings.quota ?? 0)),
  );
  return (
    <section className="panel" aria-labelledby="shares">
      <div className="panel-head">
        <h2 id="shares">GPUs by project</h2>
        <span className="room" />
        <Link to="/projects">{all.length > PROJECTS ? `All ${all.length} projects` : 'All projects'}</Link>
      </div>
      {projects.length === 0 ? (
        <Empty title="No project yet">
          <p>A project owns a quota: GPUs it can always have back.</p>
          {may.somewhere('settings') && (
            <Button kind="primary" icon="plus" onClick={() => go('/projects?new=project')}>
              Create project
            </Button>
          )}
          <Copyable text="berth project create vision --quota 2" />
        </Empty>
      ) : (
        <div className="shares">
          {projects.map(project => {
            const quota = project.settings.quota ?? 0;
            return (
              <div className="share-row" key={project.name}>
                <ProjectName
                  name={project.name}
                  to={`/workloads?project=${encodeURIComponent(project.name)}`}
                />
                <QuotaBar
                  project={project.name}
                  allocated={project.allocated}
                  quota={quota}
                  waiting={project.waiting}
                  scale={scale}
                />
                <span className="share-words">
                  <b>
                    {gpus(project.allocated)} / {gpus(quota)}
                  </b>
                  <span className="dim">
                    {project.waiting_count > 0 ? `${project.waiting_count} pending` : ''}
                  </span>
                </span>
              </div>
            );
          })}
          <div className="legend" aria-hidden="true">
            <span>
              <i className="within" />
              within quota
            </span>
            <span>
              <i className="borrowed" />
              borrowed
            </span>
            <span>
              <i className="promised" />
              quota
            </span>
          </div>
        </div>
      )}
    </section>
  );
}

function NodesAtAGlance() {
  const nodes = useKnown(known => known.nodes);
  const workloads = useKnown(known => known.workloads);
  const on = holdings(workloads);
  return (
    <section className="panel" aria-labelledby="glance">
      <div className="panel-head">
        <h2 id="glance">Nodes</h2>
        <span className="room" />
        <Link to="/nodes">{nodes.length > ROWS ? `All ${nodes.length} nodes` : 'All nodes'}</Link>
      </div>
      {nodes.length === 0 && <NoNodes />}
      <div className="node-rows">
        {nodes.slice(0, ROWS).map(node => {
          return <NodeRow key={node.name} node={node} on={on.get(node.name)} />;
        })}
      </div>
    </section>
  );
}

function NodeRow({ node, on }: { node: Node; on: OnNode }) {
  const allocated = useAllocated(node.name);
  return (
    <div className="node-row">
      <Link to={`/nodes/${encodeURIComponent(node.name)}`}>{node.name}</Link>
      <DeviceStrip node={node} on={on} />
      <span>
        {gpus(allocated)} / {node.devices.length}
      </span>
      <Meter part={useBusy(node.name)} label="Utilisation" tone="good" />
    </div>
  );
}

/** A machine without GPUs can still try everything. */
function NoNodes() {
  return (
    <Empty title="No nodes">
      <p>This machine has no GPU that Berth can use. Try it with simulated GPUs:</p>
      <Copyable text="berth up --change --nodes 2xdgx1" />
    </Empty>
  );
}

/** Events worth a look in passing; smaller steps are in the events of each workload. */
const TOLD = new Set([
  'submitted',
  'started',
  'evicted',
  'moved',
  'ended',
  'stopped',
  'resumed',
  'warned',
  'reserved',
  'node',
  'node-removed',
]);
const LATEST = 7;
/** Of these the newest are shown even when much else happened since. */
const WEIGHTY = new Set(['evicted', 'moved', 'ended', 'warned']);
const WEIGHTY_SHOWN = 4;

function latest(events: readonly Event[]): Event[] {
  const told = events.filter(event => TOLD.has(event.kind));
  const weighty = told.filter(event => WEIGHTY.has(event.kind)).slice(-WEIGHTY_SHOWN);
  const rest = told.filter(event => !weighty.includes(event)).slice(weighty.length - LATEST);
  return [...weighty, ...rest].sort((a, b) => b.seq - a.seq);
}

function Latest() {
  const events = useKnown(known => known.events);
  const shown = useMemo(() => latest(events), [events]);
  if (shown.length === 0) return null;
  return (
    <section className="panel" aria-labelledby="latest">
      <div className="panel-head">
        <h2 id="latest">Latest</h2>
        <span className="room" />
        <Link to="/activity">Activity</Link>
      </div>
      <ul className="latest">
        {shown.map(event => (
          <li key={event.seq}>
            <Ago at={event.at} />
            {event.workload_id == null ? (
              <b>{event.node ?? event.project}</b>
            ) : (
              <Link to={`/workloads/${event.workload_id}`}>{event.workload}</Link>
            )}
            <span className={event.level === 'warning' ? 'warning' : 'dim'}>{event.message}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

const byId = (workload: Workload) => workload.id;

function Running() {
  const workloads = useKnown(known => known.workloads);
  const all = running(workloads);
  const hasGpus = useKnown(known => (known.totals?.gpus ?? 0) > 0);
  const rows = useMemo(() => all.slice(-ROWS).reverse(), [all]);
  return (
    <section className="panel" aria-labelledby="running">
      <div className="panel-head">
        <h2 id="running">Running</h2>
        <span className="dim">{all.length}</span>
        <span className="room" />
        {all.length > ROWS && <Link to="/workloads?show=running">All {all.length}</Link>}
      </div>
      <Table
        whole
        label="Running workloads"
        rows={rows}
        columns={RUNNING_COLUMNS}
        keyOf={byId}
        empty={
          <Empty title="No running workloads">
            <p>
              {hasGpus
                ? 'This small trainer needs no image of yours:'
                : 'There are no GPUs; this small trainer runs without one:'}
            </p>
            <Copyable text={`berth submit hello -g ${hasGpus ? 1 : 0} -i berth/quickstart`} />
          </Empty>
        }
      />
    </section>
  );
}

function Pending() {
  const workloads = useKnown(known => known.workloads);
  const all = pending(workloads);
  if (all.length === 0) return null;
  return (
    <section className="panel" aria-labelledby="pending">
      <div className="panel-head">
        <h2 id="pending">Pending</h2>
        <span className="dim">{all.length}</span>
        <span className="room" />
        {all.length > ROWS && <Link to="/workloads?show=pending">All {all.length}</Link>}
      </div>
      <Table
        whole
        label="Pending workloads"
        rows={all.slice(0, ROWS)}
        columns={PENDING_COLUMNS}
        keyOf={byId}
        empty={null}
      />
    </section>
  );
}
