// The cluster at a glance. Every number leads to what it is made of.
import { useMemo } from 'react';
import type { Workload } from '../api/types.ts';
import { allocatedOn, busyOf, byProject, holdings, pending, running, totals } from '../model/derive.ts';
import { gpus, percent, plural } from '../model/format.ts';
import { useKnown } from '../model/store.ts';
import { DeviceStrip } from '../parts/devices.tsx';
import { QuotaBar } from '../parts/quota.tsx';
import { Ago, Copyable, Empty, Link, Meter, ProjectName } from '../parts/small.tsx';
import { Table } from '../parts/table.tsx';
import { PENDING_COLUMNS, RUNNING_COLUMNS } from './workload-columns.tsx';

/** Rows of a list here; the rest is one click away. */
const ROWS = 8;
/** Projects that are shown here at most, those with most GPUs first. */
const PROJECTS = 12;

export function Overview() {
  const cluster = useKnown(known => known.cluster);
  return (
    <div className="page">
      <div className="page-head">
        <h1>Overview</h1>
        {cluster?.declared && (
          <span className="tag" title="These devices exist by name; workloads are real processes">
            declared devices
          </span>
        )}
      </div>
      <Tiles />
      <div className="columns">
        <Shares />
        <div className="stack">
          <NodesAtAGlance />
          <Latest />
        </div>
      </div>
      <Running />
      <Pending />
    </div>
  );
}

function Tiles() {
  const workloads = useKnown(known => known.workloads);
  const nodes = useKnown(known => known.nodes);
  const samples = useKnown(known => known.samples);
  const { allocated, idle, running, waiting, suspended } = totals(workloads);
  const total = nodes.reduce((sum, node) => sum + node.devices.length, 0);
  const ready = nodes.filter(node => node.state === 'Ready').length;
  const busy = useMemo(() => {
    const told = samples?.values.gpu_utilisation;
    if (told !== undefined) return told / 1e6;
    return null;
  }, [samples]);
  return (
    <div className="tiles">
      <Tile
        name="Nodes"
        to="/nodes"
        number={ready}
        of={nodes.length}
        more={ready === nodes.length ? 'all ready' : `${nodes.length - ready} not ready`}
      />
      <Tile name="GPUs" to="/nodes" number={total} more={models(nodes)} />
      <Tile
        name="Allocated"
        to="/analytics"
        number={gpus(allocated)}
        of={total}
        more={total > 0 ? percent((allocated / total) * 100) : ''}
      />
      <Tile
        name="Allocated and idle"
        to="/workloads?idle=yes"
        number={gpus(idle)}
        more={idle > 0 ? 'below 5 % busy' : 'none known'}
      />
      <Tile
        name="Utilisation"
        to="/analytics"
        number={busy === null ? '–' : percent(busy)}
        more={busy === null ? 'not reported' : 'of all GPUs'}
      />
      <Tile name="Running" to="/workloads?show=running" number={running} more={plural(running, 'workload')} />
      <Tile
        name="Pending"
        to="/workloads?show=pending"
        number={waiting}
        more={suspended > 0 ? `and ${suspended} suspended` : plural(waiting, 'workload')}
      />
    </div>
  );
}

function models(nodes: readonly { devices: { model: string }[] }[]) {
  const names = [...new Set(nodes.flatMap(node => node.devices.map(device => device.model)))];
  return names.length <= 2 ? names.join(', ') : `${names.length} models`;
}

function Tile(props: { name: string; to: string; number: string | number; of?: number; more: string }) {
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
  const workloads = useKnown(known => known.workloads);
  const has = byProject(workloads);
  const projects = useMemo(() => {
    if (all.length <= PROJECTS) return all;
    const size = (name: string) => has.get(name)?.allocated ?? 0;
    return [...all].sort((a, b) => size(b.name) - size(a.name)).slice(0, PROJECTS);
  }, [all, has]);
  const scale = Math.max(
    1,
    ...projects.map(project => Math.max(has.get(project.name)?.allocated ?? 0, project.settings.quota ?? 0)),
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
          <Copyable text="berth project create vision --quota 2" />
        </Empty>
      ) : (
        <div className="shares">
          {projects.map(project => {
            const of = has.get(project.name);
            const quota = project.settings.quota ?? 0;
            return (
              <div className="share-row" key={project.name}>
                <ProjectName
                  name={project.name}
                  to={`/workloads?project=${encodeURIComponent(project.name)}`}
                />
                <QuotaBar
                  project={project.name}
                  allocated={of?.allocated ?? 0}
                  quota={quota}
                  waiting={of?.waitingGpus ?? 0}
                  scale={scale}
                />
                <span className="share-words">
                  <b>
                    {gpus(of?.allocated ?? 0)} / {gpus(quota)}
                  </b>
                  <span className="dim">{of && of.waiting > 0 ? `${of.waiting} waiting` : ''}</span>
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
  const samples = useKnown(known => known.samples);
  const on = holdings(workloads);
  return (
    <section className="panel" aria-labelledby="glance">
      <div className="panel-head">
        <h2 id="glance">Nodes</h2>
        <span className="room" />
        <Link to="/nodes">{nodes.length > ROWS ? `All ${nodes.length} nodes` : 'All nodes'}</Link>
      </div>
      {nodes.length === 0 && <Empty title="No nodes" />}
      <div className="node-rows">
        {nodes.slice(0, ROWS).map(node => {
          const here = on.get(node.name);
          const busy = busyOf(node, here, samples);
          return (
            <div className="node-row" key={node.name}>
              <Link to={`/nodes/${encodeURIComponent(node.name)}`}>{node.name}</Link>
              <DeviceStrip node={node} on={here} />
              <span>
                {gpus(allocatedOn(here))} / {node.devices.length}
              </span>
              <Meter part={busy} label="Utilisation" tone="good" />
            </div>
          );
        })}
      </div>
    </section>
  );
}

/** What somebody who comes by wants to know; steps on the way are in the events of each workload. */
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
const LATEST = 3;

function Latest() {
  const events = useKnown(known => known.events);
  const shown = useMemo(
    () =>
      events
        .filter(event => TOLD.has(event.kind))
        .slice(-LATEST)
        .reverse(),
    [events],
  );
  if (shown.length === 0) return null;
  return (
    <section className="panel" aria-labelledby="latest">
      <div className="panel-head">
        <h2 id="latest">Latest</h2>
        <span className="room" />
        <Link to="/settings">All that happened</Link>
      </div>
      <ul className="latest">
        {shown.map(event => (
          <li key={event.seq} title={event.message}>
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
          <Empty title="Nothing runs">
            <p>Submit something; this small trainer needs no image:</p>
            <Copyable text="berth submit hello -g 1 -i berth/quickstart" />
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
