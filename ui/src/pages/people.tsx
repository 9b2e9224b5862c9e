// Users and what they may do, tokens, and what everybody did.
import { useMay } from '../model/may.ts';
import { go, here, usePlace } from '../model/router.ts';
import { Tabs } from '../parts/tabs.tsx';
import { Audit } from './people-audit.tsx';
import { Tokens } from './people-tokens.tsx';
import { Users } from './people-users.tsx';

export default function People() {
  const place = usePlace();
  const may = useMay();
  const leads = may.somewhere('people');
  const tabs = [
    ...(leads ? [{ id: 'users', title: 'Users', show: () => <Users /> }] : []),
    { id: 'tokens', title: 'Tokens', show: () => <Tokens /> },
    ...(leads ? [{ id: 'audit', title: 'Audit', show: () => <Audit /> }] : []),
  ];
  return (
    <div className="page fixed people">
      <div className="page-head">
        <h1>People</h1>
      </div>
      <Tabs
        label="About people"
        tabs={tabs}
        at={place.query.get('tab') ?? tabs[0]!.id}
        onChange={tab => go(here('/people', { tab, user: null, project: null, refused: null }), 'replace')}
      />
    </div>
  );
}
