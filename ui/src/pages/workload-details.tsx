import { serverNow } from '../api/client.ts';
import type { Workload } from '../api/types.ts';
import { quoted, time } from '../model/command.ts';
import { asksFor, bytes, gpus, gpuTime, imageOf, runTime, span, waitTime } from '../model/format.ts';
import { submitCommand } from '../model/request.ts';
import { isFinal, isWaiting } from '../model/status.ts';
import { useWhy } from '../model/why.ts';
import { Facts } from '../parts/facts.tsx';
import { sentence } from '../parts/failure.tsx';
import { Ago, Copyable, Link, Meter, StatusLabel, Ticking } from '../parts/small.tsx';
import { WorkloadIndices } from './workload-indices.tsx';
import { WorkloadTimeline } from './workload-timeline.tsx';
import { ByName, WhyItWaits } from './workload-why.tsx';

export { Facts };

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
      <WorkloadTimeline workload={workload} />
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
          ['GPUs', `${asksFor(workload)} requested, ${gpus(workload.gpus_allocated)} allocated`],
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
              workload.started_at && span(runTime(workload, 0) ?? 0)
            ),
          ],
          ['Ended', workload.ended && <Ago key="ended" at={workload.ended.at} />],
          ['Exit', exitText(workload)],
          ['Priority', `${workload.priority}, ${workload.preemptible ? 'preemptible' : 'not preemptible'}`],
          ['Workers', workers(workload)],
          ['Image', imageOf(workload)],
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
          ['Last checkpoint', workload.checkpoint_at && <Ago key="saved" at={workload.checkpoint_at} />],
          ['Id', String(workload.id)],
        ]}
      />
      {workload.tasks.length > 0 && <Workers workload={workload} />}
      {request.completions != null && <WorkloadIndices workload={workload} />}
      {(workload.evictions?.length ?? 0) > 0 && <Evictions workload={workload} />}
      <div className="section">
        <h3>CLI command</h3>
        <Copyable text={request.command_line ?? submitCommand(request)} />
      </div>
    </>
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

function Workers({ workload }: { workload: Workload }) {
  const isGang = workload.workers_max > 1;
  return (
    <div className="section">
      <h3>{workload.tasks.length === 1 ? 'Placement' : 'Workers'}</h3>
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
      <h3>Preemptions</h3>
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
