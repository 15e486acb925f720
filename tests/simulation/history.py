"""Every version of every object of a kind: what somebody who is behind believes."""


class History:
    """Filled by the server's changes, oldest first. An object is None from the version on at which it was gone."""

    def __init__(self, is_readable=lambda thing: True):
        """`is_readable`: of a version that is not, nobody takes notice."""
        self._versions = {}
        self._unreadable = {}
        self._is_readable = is_readable

    def note(self, change):
        """Takes in a change; False if nobody can read the object as it is now."""
        readable = change.type == "DELETED" or self._is_readable(change.new)
        if readable:
            state = None if change.type == "DELETED" else change.new
            self._versions.setdefault(change.record.key, []).append((change.record.rv, state))
        else:
            self._unreadable.setdefault(change.record.key, []).append(change.record.rv)
        return readable

    def follow(self, server, resource):
        """Takes in all changes of a resource from now on; returns itself."""
        server.registry.subscribe_changes(resource, self.note)
        return self

    def at(self, version, read=None):
        """All objects as they were at a version.

        `read`: key -> the version of the object that was read last, of those that have been read. In it whoever had
        handled `version` believes where the object could not be read any more; without it, in the last readable one.
        """
        found = []
        for key in self._versions:
            if read is not None and self.unreadable_at(key, version):
                state = self._state(key, read.get(key))
            else:
                state = self.states_since(key, version)[0]
            if state is not None:
                found.append(state)
        return found

    def since(self, key, version, read=None):
        """The states of one object in which somebody who had handled `version` may have believed.

        `read`: the version of the object that was read last. What had come after it counts as missed if by then the
        object could not be read any more: a list shows none of the readable versions before.
        """
        states = [state for state in self.states_since(key, version) if state is not None]
        if self.unreadable_at(key, version):
            states += [state for state in [self._state(key, read)] if state is not None]
        return states

    def states_since(self, key, version):
        """The same with None for its absence."""
        versions = self._versions.get(key, ())
        current = [state for since, state in versions if since <= version][-1:] or [None]
        return [*current, *(state for since, state in versions if since > version)]

    def all_states(self, version):
        """Key -> `states_since`, of every object that there ever was."""
        return {key: self.states_since(key, version) for key in self._versions}

    def _state(self, key, version):
        """What a version of an object said; None if nobody could read it, or there was no such version."""
        return dict(self._versions.get(key, ())).get(version)

    def unreadable_at(self, key, version):
        """Whether the newest version up to this one cannot be read."""
        unreadable = [known for known in self._unreadable.get(key, ()) if known <= version]
        readable = [known for known, _ in self._versions.get(key, ()) if known <= version]
        return bool(unreadable) and unreadable[-1] > max(readable, default=0)

    def newest(self):
        """All objects as they are now."""
        return [versions[-1][1] for versions in self._versions.values() if versions[-1][1] is not None]
