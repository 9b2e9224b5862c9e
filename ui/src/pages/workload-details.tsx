import type { ReactNode } from 'react';
import { serverNow } from '../api/client.ts';
import type { Why, Workload } from '../api/types.ts';
import { quoted, time } from '../model/command.ts';
import { asksFor, bytes, exact, gpus, gpuTime, runTime, span, waitTime } from '../model/format.ts';
import { submitCommand } from '../model/request.ts';
import { isFinal, isWaiting } from '../model/status.ts';
import { now } from '../model/store.ts';
import { useWhy } from '../model/why.ts';
import { sentence } from '../parts/failure.tsx';
import { Ago, Copyable, Link, Meter, StatusLabel, Ticking } from '../parts/small.tsx';

export function WorkloadDetails({ workload }: { workload: Workload }) {
  const waits =
    !isFinal(workload.status) && workload.gpus_allocated === 0 && workload.status !== 'Terminating';
  const why = useWhy(workload, waits);
  const request = workload.request;
  const command = [...(request.command ?? []), ...(request.args ?? [])].map(quoted).join(' ');
  return (
    <>
      {why?.waits && <WhyItWaits why={why} />}
      {!why?.waits && workload.message && <p className="note">{sentence(workload.message)}</p>}
      {workload.progress?.percent != null && !isFinal(workload.status) && (
        <div className="section">
          <h3>Progress</h3>
          <Meter part={workload.progress.percent} label="Progress" />
          {workload.progress.left_secs != null && (
            <p className="dim">about {span(workload.progress.left_secs * 1000)} left</p>
          )}
        </div>
      )}
      <Facts
        rows={[
          ['GPUs', `${asksFor(workload)} asked for, ${gpus(workload.gpus_allocated)} allocated`],
          ['Submitted', <Ago key="at" at={workload.submitted_at} />],
          [
            'Waited',
            !isWaiting(workload) ? (
              span(waitTime(workload, serverNow()))
            ) : (
              <Ticking key="waits" show={now => span(waitTime(workload, now))} />
            ),
          ],
          ['First ran', workload.started_at && <Ago key="ran" at={workload.started_at} />],
          [
            'Run time',
            workload.running_since ? (
              <Ticking key="runs" show={now => span(runTime(workload, now) ?? 0)} />
            ) : (
              workload.ended && workload.started_at && span(runTime(workload, 0) ?? 0)
            ),
          ],
          ['Ended', workload.ended && <Ago key="ended" at={workload.ended.at} />],
          ['Exit', exitText(workload)],
          [
            'Priority',
            `${workload.priority}${workload.preemptible ? ', may be preempted' : ', is not preempted'}`,
          ],
          ['Workers', workers(workload)],
          ['Image', request.image],
          ['Command', command && <code key="command">{command}</code>],
          ['CPU and memory', resources(workload)],
          ['Ports', request.ports?.join(', ')],
          ['Environment', Object.keys(request.environment ?? {}).join(', ')],
          ['Ends after', request.max_run_secs && time(request.max_run_secs)],
          [
            'Runs',
            workload.runs > 0 &&
              (workload.failures > 0
                ? `${workload.runs}, of which ${workload.failures} failed`
                : workload.runs),
          ],
          ['Last saved', workload.checkpoint_at && <Ago key="saved" at={workload.checkpoint_at} />],
          ['Identity', String(workload.id)],
        ]}
      />
      {workload.tasks.length > 0 && <Workers workload={workload} />}
      {(workload.evictions?.length ?? 0) > 0 && <Evictions workload={workload} />}
      <div className="section">
        <h3>The same by command</h3>
        <Copyable text={request.command_line ?? submitCommand(request)} />
      </div>
    </>
  );
}

export function Facts({ rows }: { rows: [string, ReactNode][] }) {
  return (
    <dl className="facts">
      {rows
        .filter(([, value]) => value !== null && value !== undefined && value !== '' && value !== false)
        .map(([name, value]) => [<dt key={`${name}-name`}>{name}</dt>, <dd key={name}>{value}</dd>])}
    </dl>
  );
}

function exitText(workload: Workload) {
  const ended = workload.ended;
  if (!ended) return null;
  if (ended.exit_code != null) return `code ${ended.exit_code}`;
  return ended.signal != null ? `signal ${ended.signal}` : null;
}

function workers(workload: Workload) {
  if (workload.workers_max === 1) return null;
  return workload.workers_min === workload.workers_max
    ? `${workload.workers_min}, all or none`
    : `${workload.workers_min} to ${workload.workers_max}`;
}

function resources(workload: Workload) {
  const { cpu, memory } = workload.request;
  const parts = [cpu == null ? null : `${cpu} cores`, memory == null ? null : bytes(memory)];
  return parts.filter(Boolean).join(', ');
}

/** A workload by `project/name`, as a way to it when it is known. */
function ByName({ full }: { full: string }) {
  const found = [...now().workloads.values()].find(
    workload => `${workload.project}/${workload.name}` === full && !isFinal(workload.status),
  );
  return found ? <Link to={`/workloads/${found.id}`}>{full}</Link> : <span>{full}</span>;
}

function WhyItWaits({ why }: { why: Why }) {
  const remedy = why.remedy;
  return (
    <section className="why" aria-label="Why it waits">
      <p>{sentence(why.text)}</p>
      <Facts
        rows={[
          ['Rule', why.rule],
          ...Object.entries(why.numbers).map(([name, value]): [string, ReactNode] => [
            name.replaceAll('_', ' '),
            value === 'true' ? 'yes' : value === 'false' ? 'no' : value,
          ]),
          ['May change', why.until && exact(why.until)],
          ['Would start it', remedy?.text],
          [
            'Held by',
            why.held_by.length > 0 && (
              <ul>
                {why.held_by.map(held => (
                  <li key={held.workload}>
                    <ByName full={held.workload} />{' '}
                    <span className="dim">{held.gpus === 1 ? '1 GPU' : `${gpus(held.gpus)} GPUs`}</span>
                  </li>
                ))}
              </ul>
            ),
          ],
        ]}
      />
    </section>
  );
}

function Workers({ workload }: { workload: Workload }) {
  const isGang = workload.workers_max > 1;
  return (
    <div className="section">
      <h3>{workload.tasks.length === 1 ? 'Place' : 'Workers'}</h3>
      <div className="panel">
        <table>
          <thead>
            <tr>
              {isGang && <th scope="col">Worker</th>}
              <th scope="col">Node</th>
              <th scope="col">Devices</th>
              <th scope="col">Memory</th>
              <th scope="col">Status</th>
            </tr>
          </thead>
          <tbody>
            {workload.tasks.map(task => (
              <tr key={task.rank}>
                {isGang && (
                  <td>
                    {task.rank}
                    {task.extra && <span className="tag"> extra</span>}
                  </td>
                )}
                <td>
                  <Link className="light" to={`/nodes/${encodeURIComponent(task.node)}`}>
                    {task.node}
                  </Link>
                </td>
                <td>{task.devices.join(', ') || '–'}</td>
                <td>{task.gpu_memory == null ? 'whole' : bytes(task.gpu_memory)}</td>
                <td>
                  <StatusLabel status={task.status} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}

function Evictions({ workload }: { workload: Workload }) {
  return (
    <div className="section">
      <h3>Stopped for others</h3>
      <ul>
        {workload.evictions?.map(eviction => (
          <li className="event" key={eviction.at}>
            <Ago at={eviction.at} />
            <p>
              {eviction.winner ? (
                <>
                  for <ByName full={eviction.winner} />
                </>
              ) : (
                'by the scheduler'
              )}{' '}
              <span className="dim">
                {eviction.rule}, {gpuTime(eviction.lost_gpu_secs)} lost
              </span>
            </p>
          </li>
        ))}
      </ul>
    </div>
  );
}
