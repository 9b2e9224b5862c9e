// What belongs to this installation, to this person, and to this browser; and what happened.
import { useState } from 'react';
import { exact } from '../model/format.ts';
import { signOut } from '../model/live.ts';
import { useKnown } from '../model/store.ts';
import { whereIs } from '../parts/roles.tsx';
import { Ago, Button, Copyable, Empty, Link } from '../parts/small.tsx';
import { Facts } from './workload-details.tsx';
import { EventList } from './workload-events.tsx';

type Theme = 'system' | 'light' | 'dark';

const THEMES: { id: Theme; text: string }[] = [
  { id: 'system', text: 'As the system' },
  { id: 'light', text: 'Light' },
  { id: 'dark', text: 'Dark' },
];

function currentTheme(): Theme {
  const kept = localStorage.getItem('berth.theme');
  return kept === 'light' || kept === 'dark' ? kept : 'system';
}

export default function Settings() {
  const cluster = useKnown(known => known.cluster);
  const user = useKnown(known => known.user);
  const roles = useKnown(known => known.roles);
  const events = useKnown(known => known.events);
  const [theme, setTheme] = useState(currentTheme);
  const choose = (theme: Theme) => {
    if (theme === 'system') {
      localStorage.removeItem('berth.theme');
      delete document.documentElement.dataset.theme;
    } else {
      localStorage.setItem('berth.theme', theme);
      document.documentElement.dataset.theme = theme;
    }
    setTheme(theme);
  };
  return (
    <div className="page">
      <div className="page-head">
        <h1>Settings</h1>
      </div>
      <div className="columns">
        <section className="panel" aria-labelledby="you">
          <div className="panel-head">
            <h2 id="you">You</h2>
          </div>
          <div className="settings-body">
            <Facts
              rows={[
                ['Signed in as', user],
                [
                  'Roles',
                  <ul key="roles">
                    {roles.map(grant => (
                      <li key={`${grant.role} ${grant.scope}`}>
                        {grant.role} <span className="dim">{whereIs(grant.scope)}</span>
                      </li>
                    ))}
                    {roles.length === 0 && <li>none; ask whoever leads a project for one</li>}
                  </ul>,
                ],
                [
                  'Tokens',
                  <Link key="tokens" to="/people?tab=tokens">
                    yours, and new ones
                  </Link>,
                ],
              ]}
            />
            <div className="section">
              <h3 id="theme">Colours</h3>
              <fieldset className="segments" aria-labelledby="theme">
                {THEMES.map(option => (
                  <button
                    key={option.id}
                    type="button"
                    aria-pressed={theme === option.id}
                    onClick={() => choose(option.id)}
                  >
                    {option.text}
                  </button>
                ))}
              </fieldset>
            </div>
            <div className="section">
              <h3>Keys</h3>
              <p className="dim">
                <kbd>/</kbd> searches; <kbd>g</kbd> and then <kbd>o</kbd> <kbd>w</kbd> <kbd>p</kbd>{' '}
                <kbd>n</kbd> <kbd>a</kbd> <kbd>u</kbd> <kbd>s</kbd> goes to a page; <kbd>Esc</kbd> closes;
                arrow keys go through rows, tabs and charts.
              </p>
            </div>
            <div className="actions">
              <Button onClick={() => void signOut()}>Sign out</Button>
            </div>
          </div>
        </section>
        <section className="panel" aria-labelledby="installation">
          <div className="panel-head">
            <h2 id="installation">This installation</h2>
          </div>
          <div className="settings-body">
            {cluster && (
              <Facts
                rows={[
                  ['Berth', cluster.version],
                  ['Runs', cluster.mode === 'kubernetes' ? 'on Kubernetes' : 'on one machine'],
                  ['Devices', cluster.declared ? 'declared, for trying it out' : 'real'],
                  [
                    'Since',
                    <span key="since" title={exact(cluster.started_at)}>
                      <Ago at={cluster.started_at} />
                    </span>,
                  ],
                  ['Folder', <code key="folder">{cluster.folder}</code>],
                ]}
              />
            )}
            <div className="section">
              <h3>Another browser</h3>
              <Copyable text="berth dashboard" />
            </div>
            {cluster?.mode !== 'kubernetes' && (
              <div className="section">
                <h3>A copy of everything</h3>
                <Copyable text="berth backup ~/berth.backup" />
              </div>
            )}
          </div>
        </section>
      </div>
      <section className="panel" aria-labelledby="happened">
        <div className="panel-head">
          <h2 id="happened">What happened</h2>
          <span className="dim">the newest first</span>
        </div>
        <div className="settings-body">
          {events.length === 0 ? (
            <Empty title="Nothing yet" />
          ) : (
            <EventList events={events.slice(-200).reverse()} withNames />
          )}
        </div>
      </section>
    </div>
  );
}
